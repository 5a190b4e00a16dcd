// --data: from names of files to the arrays in them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "data/match.h"
#include "formats/file/array_source.h"
#include "formats/idx/idx.h"
#include "formats/npy/npy.h"
#include "formats/npz/npz.h"

namespace plimsoll {
namespace {

enum class Format { kNpy, kNpz, kIdx };

// The name decides where it can, so that a damaged file is reported as what it was meant to be.
Result<Format> format_of(const std::string& path) {
  if (path.ends_with(".npy")) return Format::kNpy;
  if (path.ends_with(".npz")) return Format::kNpz;
  if (path.ends_with("-ubyte") || path.ends_with("-ubyte.gz") || path.ends_with(".idx") || path.ends_with(".idx.gz"))
    return Format::kIdx;
  PLIMSOLL_ASSIGN(const auto file, File::open_read(path));
  std::array<std::byte, 4> magic{};
  if (file.size() >= 4) PLIMSOLL_TRY(file.pread_exact(0, magic));
  const auto at = [&](size_t i) { return std::to_integer<int>(magic[i]); };
  if (at(0) == 0x93 && at(1) == 'N' && at(2) == 'U' && at(3) == 'M') return Format::kNpy;
  if (at(0) == 'P' && at(1) == 'K') return Format::kNpz;
  if ((at(0) == 0x1F && at(1) == 0x8B) || (at(0) == 0 && at(1) == 0 && at(2) >= 8 && at(2) <= 14)) return Format::kIdx;
  Error error{ErrorCode::kBadDataFile, fmt::format("{} is no data file we know", path), {}, {}};
  return fail(error.fact("expected .npy, .npz, or IDX (plain or .gz)"));
}

// Opens each file once, however many arrays lie in it.
class Opener {
 public:
  Result<FoundArray> open(const ArraySource& source) {
    auto& file = files_[source.path];
    if (!file) {
      PLIMSOLL_ASSIGN(auto opened, File::open_read(source.path));
      file = std::make_shared<const File>(std::move(opened));
    }
    return FoundArray{source.label, source.dtype, source.dims, file, nullptr, source.offset};
  }

 private:
  std::map<std::string, std::shared_ptr<const File>> files_;
};

std::vector<std::string> split_at_commas(const std::string& argument) {
  // A name that has a comma in it and exists is one name.
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) return {argument};
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= argument.size();) {
    const size_t end = std::min(argument.find(',', begin), argument.size());
    parts.push_back(argument.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string quoted_names(const std::vector<PortSpec>& ports) {
  std::string text;
  for (const auto& port : ports) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", port.name);
  return text;
}

Error usage(const std::string& argument, std::string_view why) {
  return {ErrorCode::kUsage, fmt::format("--data {}: {}", argument, why), {}, {}};
}

Status check_list(const std::string& argument, const std::vector<std::string>& paths, const DataSpec& spec) {
  for (const auto& path : paths)
    if (path.empty()) return fail(usage(argument, "has an empty name between its commas"));
  if (spec.inputs.size() != 1 || (spec.needs_targets && spec.outputs.size() != 1))
    return fail(usage(argument, "a list of files serves a model with one input and one output")
                    .fact(fmt::format("inputs: {}; outputs: {}", quoted_names(spec.inputs), quoted_names(spec.outputs)))
                    .remedy("an .npz with arrays of these names: np.savez('data.npz', **{name: array, ...})"));
  if (paths.size() > 3) return fail(usage(argument, "more than three files: x, y and sample weights"));
  if (spec.needs_targets && paths.size() < 2)
    return fail(usage(argument, "has no targets").remedy(fmt::format("--data {},y.npy", argument)));
  return {};
}

Result<FoundArray> open_one(Opener& opener, const std::string& path) {
  PLIMSOLL_ASSIGN(const Format format, format_of(path));
  if (format == Format::kNpz)
    return fail(
        usage(path, "an .npz stands alone").remedy("put x, y and sample_weight into one .npz, or list .npy files"));
  PLIMSOLL_ASSIGN(const auto source, format == Format::kNpy ? open_npy(path) : open_idx(path));
  return opener.open(source);
}

Result<FoundArrays> open_list(const std::string& argument, const std::vector<std::string>& paths,
                              const DataSpec& spec) {
  PLIMSOLL_TRY(check_list(argument, paths, spec));
  Opener opener;
  FoundArrays found;
  PLIMSOLL_ASSIGN(auto x, open_one(opener, paths[0]));
  found.inputs.push_back(std::move(x));
  if (!spec.needs_targets) return found;
  PLIMSOLL_ASSIGN(auto y, open_one(opener, paths[1]));
  found.targets.push_back(std::move(y));
  if (paths.size() < 3) return found;
  PLIMSOLL_ASSIGN(auto weights, open_one(opener, paths[2]));
  found.weights.emplace_back(std::move(weights));
  return found;
}

// The arrays of one .npz, by name.
class Archive {
 public:
  static Result<Archive> open(const std::string& path) {
    PLIMSOLL_ASSIGN(auto names, npz_names(path));
    return Archive(path, std::move(names));
  }

  bool has(const std::string& name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

  Result<FoundArray> array(const std::string& name) {
    PLIMSOLL_ASSIGN(const auto source, open_npz(path_, name));
    return opener_.open(source);
  }

  // One array a port: under the port's name, or under `short_name` where there is only one port.
  Result<std::vector<FoundArray>> arrays(const std::vector<PortSpec>& ports, const std::string& short_name,
                                         std::string_view kind) {
    std::vector<FoundArray> found;
    for (const auto& port : ports) {
      const bool single = ports.size() == 1;
      const std::string& name = single && !has(port.name) ? short_name : port.name;
      if (!has(name)) return fail(missing(port.name, single ? short_name : "", kind));
      PLIMSOLL_ASSIGN(auto one, array(name));
      found.push_back(std::move(one));
    }
    return found;
  }

 private:
  Archive(std::string path, std::vector<std::string> names) : path_(std::move(path)), names_(std::move(names)) {}

  Error missing(const std::string& name, const std::string& short_name, std::string_view kind) const {
    const auto wanted = short_name.empty() ? fmt::format("'{}'", name) : fmt::format("'{}' or '{}'", short_name, name);
    Error error{ErrorCode::kBadDataFile,
                fmt::format("{}: no array {} for the model's {} '{}'", path_, wanted, kind, name),
                {},
                {}};
    return error.fact(names_.empty() ? "it holds no arrays" : fmt::format("it holds: {}", fmt::join(names_, ", ")));
  }

  std::string path_;
  std::vector<std::string> names_;
  Opener opener_;
};

Result<FoundArrays> open_archive(const std::string& path, const DataSpec& spec) {
  PLIMSOLL_ASSIGN(auto archive, Archive::open(path));
  FoundArrays found;
  PLIMSOLL_ASSIGN(found.inputs, archive.arrays(spec.inputs, "x", "input"));
  if (!spec.needs_targets) return found;
  PLIMSOLL_ASSIGN(found.targets, archive.arrays(spec.outputs, "y", "output"));
  bool any = false;
  for (const auto& port : spec.outputs) {
    const std::string own = "sample_weight_" + port.name, shared = "sample_weight";
    auto& weight = found.weights.emplace_back();
    if (!archive.has(own) && !archive.has(shared)) continue;
    PLIMSOLL_ASSIGN(weight, archive.array(archive.has(own) ? own : shared));
    any = true;
  }
  if (!any) found.weights.clear();
  return found;
}

Result<FoundArrays> find_arrays(const std::string& argument, const DataSpec& spec) {
  const auto paths = split_at_commas(argument);
  if (paths.size() == 1 && !paths[0].empty()) {
    PLIMSOLL_ASSIGN(const Format format, format_of(paths[0]));
    if (format == Format::kNpz) return open_archive(paths[0], spec);
  }
  return open_list(argument, paths, spec);
}

}  // namespace

Result<DataSet> open_data(const std::string& argument, const DataSpec& spec) {
  PLIMSOLL_ASSIGN(auto found, find_arrays(argument, spec));
  return match_arrays(std::move(found), spec);
}

}  // namespace plimsoll
