// Resolves --data: from file names to the arrays in the files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "data/csv_data.h"
#include "data/features.h"
#include "data/image_rows.h"
#include "data/match.h"
#include "data/npz_names.h"
#include "data/record_rows.h"
#include "data/string_array.h"
#include "data/string_cells.h"
#include "data/text_folder.h"
#include "data/text_rows.h"
#include "formats/array_formats.h"
#include "formats/image/folder.h"

namespace plimsoll::engine {
namespace {

// Returns an error for a file in another data format, with a remedy that converts it.
Error unsupported_file(const std::string& path, std::string_view magic) {
  Error error{ErrorCode::kBadDataFile, fmt::format("{} is not a supported data file", path), {}, {}};
  error.fact("supported: " + array_format_names() + ", CSV, TFRecord, and folders of pictures");
  const auto ends = [&](std::initializer_list<const char*> endings) {
    return std::any_of(endings.begin(), endings.end(), [&](const char* one) { return path.ends_with(one); });
  };
  const bool image = ends({".jpg", ".jpeg", ".JPG", ".png", ".PNG", ".bmp", ".gif"}) || magic.starts_with("\xff\xd8") ||
                     magic.starts_with("\x89PNG");
  if (is_csv(path) || path.find(".tfrecord") != std::string::npos)
    return error.fact("it cannot be part of a list").remedy(fmt::format("--data {}   alone", path));
  if (ends({".txt"}))
    return error.remedy("np.save('x.npy', np.loadtxt(file, delimiter=','))   or pandas.read_csv(file).to_numpy()");
  if (image) return error.fact("it is one image").remedy("--data FOLDER   with one folder of images per class in it");
  if (ends({".pkl", ".pickle"})) return error.remedy("np.save('x.npy', np.asarray(pickle.load(open(file, 'rb'))))");
  return error.remedy("np.save('x.npy', array)   in Python, once per array");
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Result<const ArrayFormat*> format_of(const std::string& path) {
  if (is_folder(path))
    return fail(Error{ErrorCode::kBadDataFile,
                      fmt::format("{} is a folder, not a data file", path),
                      {},
                      {fmt::format("--data {}   alone reads the pictures in its folders", path)}});
  if (const ArrayFormat* format = array_format_of_name(path)) return format;
  PLIMSOLL_ASSIGN(const auto file, File::open_read(path));
  std::string start(kSniffedBytes, '\0');
  const auto there = static_cast<size_t>(std::min<int64_t>(file.size(), kSniffedBytes));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start).first(there))));
  if (const ArrayFormat* format = array_format_of_start(start)) return format;
  return fail(unsupported_file(path, start));
}

// Opens each file once, even if it holds several arrays.
class Opener {
 public:
  Result<FoundArray> open(const ArraySource& source) {
    auto& file = files_[source.path];
    if (!file) {
      PLIMSOLL_ASSIGN(auto opened, File::open_read(source.path));
      file = std::make_shared<const File>(std::move(opened));
    }
    FoundArray found;
    found.label = source.label;
    found.dtype = source.dtype;
    found.dims = source.dims;
    found.file = file;
    found.offset = source.offset;
    if (source.text != TextKind::kNumbers) {
      found.strings = string_array(source, file);
      found.dims.pop_back();
    }
    return found;
  }

 private:
  std::map<std::string, std::shared_ptr<const File>> files_;
};

std::vector<std::string> split_at_commas(const std::string& argument) {
  // A path that contains a comma and exists is one path, not a list.
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
    if (path.empty())
      return fail(usage(argument, "has an empty file name between two commas").remedy("--data x.npy,y.npy"));
  if (spec.inputs.size() != 1 || (spec.needs_targets && spec.outputs.size() != 1))
    return fail(usage(argument, "a list of files needs a model with one input and one output")
                    .fact(fmt::format("inputs: {}; outputs: {}", quoted_names(spec.inputs), quoted_names(spec.outputs)))
                    .remedy("an .npz with arrays of these names: np.savez('data.npz', **{name: array, ...})"));
  if (paths.size() > 3)
    return fail(usage(argument, "has more than three files").remedy("--data x.npy,y.npy,sample_weights.npy"));
  if (spec.needs_targets && paths.size() < 2)
    return fail(usage(argument, "has no targets").remedy(fmt::format("--data {},y.npy", argument)));
  return {};
}

Result<FoundArray> open_one(Opener& opener, const std::string& path) {
  PLIMSOLL_ASSIGN(const ArrayFormat* format, format_of(path));
  if (format->has_names())
    return fail(usage(path, fmt::format("{} cannot be part of a list", format->help_one))
                    .remedy(fmt::format("put x, y and sample_weight into one {}, or list .npy files", format->name)));
  PLIMSOLL_ASSIGN(const auto source, format->open(path));
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

// The arrays of one file by name.
class Archive {
 public:
  static Result<Archive> open(const ArrayFormat& format, const std::string& path) {
    PLIMSOLL_ASSIGN(auto names, format.names(path));
    return Archive(format, path, std::move(names));
  }

  bool has(const std::string& name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

  Result<FoundArray> array(const std::string& name) {
    PLIMSOLL_ASSIGN(const auto source, format_->open_named(path_, name));
    return opener_.open(source);
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::string& path() const { return path_; }

  // Returns one array per port, named like the port, or `short_name` if there is only one port.
  Result<std::vector<FoundArray>> arrays(const std::vector<PortSpec>& ports, bool single, const std::string& short_name,
                                         std::string_view kind, const std::string& wanted) {
    std::vector<FoundArray> found;
    for (const auto& port : ports) {
      const std::string& name = single && !has(port.name) && !short_name.empty() ? short_name : port.name;
      if (!has(name)) return fail(missing(port.name, kind, single ? wanted : ""));
      PLIMSOLL_ASSIGN(auto one, array(name));
      found.push_back(std::move(one));
    }
    return found;
  }

 private:
  Archive(const ArrayFormat& format, std::string path, std::vector<std::string> names)
      : format_(&format), path_(std::move(path)), names_(std::move(names)) {}

  // Returns text such as "x_train (60000, 28, 28)". A compressed array is listed without its shape, which is known only
  // after decompression.
  std::string contents() const {
    constexpr size_t kMostListed = 100;  // a file may hold 100,000, and each needs a lookup
    std::string text;
    for (size_t i = 0; i < std::min(names_.size(), kMostListed); ++i) {
      const std::string& name = names_[i];
      text += (text.empty() ? "" : ", ") + name;
      if (format_->packed != nullptr && format_->packed(path_, name)) continue;
      if (const auto source = format_->open_named(path_, name)) text += " " + dims_text(source->dims);
    }
    if (names_.size() > kMostListed) text += fmt::format(", and {} more", names_.size() - kMostListed);
    return text;
  }

  Error missing(const std::string& name, std::string_view kind, const std::string& wanted) const {
    Error error{ErrorCode::kBadDataFile,
                fmt::format("{}: there is no array '{}' for the model's {} '{}'", path_, name, kind, name),
                {},
                {}};
    error.fact(names_.empty() ? "it holds no arrays" : fmt::format("it holds: {}", contents()));
    if (wanted.empty())
      return error.remedy(fmt::format("{}   with the names of the inputs and outputs", format_->write_named));
    error.what = fmt::format("{}: there is no array with a known name for the model's {} '{}'", path_, kind, name);
    return error.fact(fmt::format("known names: {}; or '{}'", wanted, name)).remedy(std::string(format_->write_pair));
  }

  const ArrayFormat* format_;
  std::string path_;
  std::vector<std::string> names_;
  Opener opener_;
};

Result<FoundArrays> open_archive(const ArrayFormat& format, const std::string& path, const DataSpec& spec,
                                 bool only_input = true) {
  PLIMSOLL_ASSIGN(auto archive, Archive::open(format, path));
  const bool single_x = spec.inputs.size() == 1 && only_input, single_y = spec.outputs.size() == 1;
  const bool own_x = !single_x || archive.has(spec.inputs[0].name);
  const bool own_y = !spec.needs_targets || !single_y || archive.has(spec.outputs[0].name);
  const std::string wanted = known_namings(spec.split, spec.needs_targets);
  // The model's own names come first. If one of them is missing, a usual pair of names is searched for.
  ArrayNames naming{own_x ? "" : "x", own_y ? "" : "y", {"sample_weight"}};
  if (!own_x && own_y) {
    PLIMSOLL_ASSIGN(const auto found, find_naming(path, archive.names(), spec.split, false));
    if (found) naming.x = found->x;
  } else if (!own_x || (!own_y && !archive.has("y"))) {
    PLIMSOLL_ASSIGN(const auto found, find_naming(path, archive.names(), spec.split, true));
    if (found) naming = *found;
  }
  FoundArrays found;
  PLIMSOLL_ASSIGN(found.inputs, archive.arrays(spec.inputs, single_x, naming.x, "input", wanted));
  if (!spec.needs_targets) return found;
  PLIMSOLL_ASSIGN(found.targets, archive.arrays(spec.outputs, single_y, naming.y, "output", wanted));
  bool any = false;
  for (const auto& port : spec.outputs) {
    std::vector<std::string> names{"sample_weight_" + port.name};
    names.insert(names.end(), naming.weights.begin(), naming.weights.end());
    auto& weight = found.weights.emplace_back();
    const auto name =
        std::find_if(names.begin(), names.end(), [&](const std::string& one) { return archive.has(one); });
    if (name == names.end()) continue;
    PLIMSOLL_ASSIGN(weight, archive.array(*name));
    any = true;
  }
  if (!any) found.weights.clear();
  return found;
}

// "FILE:NAME,NAME": the arrays of one file by name.
struct ChosenArrays {
  std::string path;
  const ArrayFormat* format = nullptr;
  std::vector<std::string> names;
};

std::optional<ChosenArrays> chosen_arrays(const std::string& argument) {
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) return std::nullopt;
  for (size_t colon = argument.find(':'); colon != std::string::npos; colon = argument.find(':', colon + 1)) {
    ChosenArrays chosen;
    chosen.path = argument.substr(0, colon);
    chosen.format = array_format_of_name(chosen.path);
    if (chosen.format == nullptr || !chosen.format->has_names()) continue;
    chosen.names = split_at_commas(argument.substr(colon + 1));
    for (auto& name : chosen.names) name.erase(0, name.starts_with('/') ? 1 : 0);
    return chosen;
  }
  return std::nullopt;
}

// Inputs, then targets, then sample weights, in the order of the model.
Result<FoundArrays> open_chosen(const ChosenArrays& chosen, const DataSpec& spec) {
  const size_t inputs = spec.inputs.size(), outputs = spec.needs_targets ? spec.outputs.size() : 0;
  const size_t count = chosen.names.size();
  const bool weights = spec.needs_targets && count == inputs + 2 * outputs;
  if (count < inputs + outputs || (spec.needs_targets && count != inputs + outputs && !weights))
    return fail(usage(fmt::format("{}:{}", chosen.path, fmt::join(chosen.names, ",")),
                      fmt::format("names {} arrays; the model has {} inputs and {} outputs", count, inputs, outputs))
                    .remedy(fmt::format("--data {}:INPUT,...,TARGET,...", chosen.path)));
  Opener opener;
  const auto open = [&](size_t i) -> Result<FoundArray> {
    PLIMSOLL_ASSIGN(const auto source, chosen.format->open_named(chosen.path, chosen.names[i]));
    return opener.open(source);
  };
  FoundArrays found;
  for (size_t i = 0; i < inputs + outputs + (weights ? outputs : 0); ++i) {
    PLIMSOLL_ASSIGN(FoundArray array, open(i));
    if (i < inputs)
      found.inputs.push_back(std::move(array));
    else if (i < inputs + outputs)
      found.targets.push_back(std::move(array));
    else
      found.weights.emplace_back(std::move(array));
  }
  return found;
}

bool reads_text(const DataSpec& spec) {
  return std::any_of(spec.inputs.begin(), spec.inputs.end(), [](const PortSpec& port) { return port.text != nullptr; });
}

Result<FoundArrays> find_arrays(const std::string& argument, const DataSpec& spec) {
  if (const auto chosen = chosen_arrays(argument)) return open_chosen(*chosen, spec);
  PLIMSOLL_ASSIGN(const auto records, record_files(argument));
  if (!records.empty()) return open_records(records, spec);
  const auto paths = split_at_commas(argument);
  if (paths.size() == 1 && is_folder(paths[0]))
    return reads_text(spec) ? open_text_folder(paths[0], spec) : open_image_folder(paths[0], spec);
  if (paths.size() == 1 && is_csv(paths[0])) return open_csv(paths[0], spec);
  if (paths.size() == 1 && !paths[0].empty()) {
    PLIMSOLL_ASSIGN(const ArrayFormat* format, format_of(paths[0]));
    if (format->has_names()) return open_archive(*format, paths[0], spec);
  }
  return open_list(argument, paths, spec);
}

}  // namespace

Result<std::vector<int64_t>> sample_shape(const std::string& argument, const PortSpec& input, bool only,
                                          const DataSpec& with) {
  DataSpec spec = with;
  spec.inputs = ports_of_data({input});
  spec.needs_targets = false;
  const auto paths = split_at_commas(argument);
  PLIMSOLL_ASSIGN(const auto records, record_files(argument));
  if (!input.text) {
    if (paths.size() == 1 && is_folder(paths[0])) return image_sample_shape(spec);
    if (!records.empty()) return record_sample_shape(records, input, only, spec);
  }
  FoundArrays found;
  const bool by_name = !records.empty() || (paths.size() == 1 && (is_folder(paths[0]) || is_csv(paths[0])));
  if (only || by_name) {
    PLIMSOLL_ASSIGN(found, find_arrays(argument, spec));
  } else {
    const ArrayFormat* format = nullptr;
    if (paths.size() == 1) {
      PLIMSOLL_ASSIGN(format, format_of(paths[0]));
    }
    if (format == nullptr || !format->has_names())
      return fail(usage(argument, "a list of files needs a model with one input")
                      .remedy("an .npz with arrays named after the inputs and outputs"));
    PLIMSOLL_ASSIGN(found, open_archive(*format, paths[0], spec, false));
  }
  if (input.text) return shape_of_numbers(std::move(found.inputs[0]), input);
  const auto& dims = found.inputs[0].dims;
  if (dims.empty())
    return fail(ErrorCode::kDataShape,
                fmt::format("{}: a single number, not an array of samples", found.inputs[0].label));
  return std::vector<int64_t>(dims.begin() + 1, dims.end());
}

std::string data_help(bool with_targets) {
  return array_format_help(with_targets) +
         (with_targets ? "; a folder with one folder of pictures per class" : "; a folder of pictures") +
         "; a CSV; or TFRecord files ('train-*.tfrecord')";
}

namespace {

Result<NamedColumn> named_column(std::string name, FoundArray found) {
  if (found.dims.empty())
    return fail(ErrorCode::kDataShape, fmt::format("{}: a single number, not an array of samples", found.label));
  if (found.strings) return column_of_cells(std::move(name), std::move(found));
  NamedColumn named;
  named.name = std::move(name);
  named.rows = found.dims[0];
  PLIMSOLL_ASSIGN(Shape sample, checked_shape({found.dims.begin() + 1, found.dims.end()}, found.label));
  named.column.label = std::move(found.label);
  named.column.type = {found.dtype, std::move(sample)};
  named.column.file = std::move(found.file);
  named.column.offset = found.offset;
  named.column.rows = std::move(found.rows);
  named.column.field = found.field;
  return named;
}

Result<std::vector<NamedColumn>> columns_of(const ArrayFormat& format, const std::string& path,
                                            const std::vector<std::string>& names) {
  Opener opener;
  std::vector<NamedColumn> columns;
  for (const std::string& name : names) {
    PLIMSOLL_ASSIGN(const auto source, format.open_named(path, name));
    PLIMSOLL_ASSIGN(auto found, opener.open(source));
    PLIMSOLL_ASSIGN(auto column, named_column(name, std::move(found)));
    columns.push_back(std::move(column));
  }
  if (!columns.empty()) return columns;
  return fail(ErrorCode::kDataEmpty, path + ": it holds no arrays");
}

// One input and one output of any shape.
Result<DataSpec> spec_without_model(const std::string& argument, const ReadOptions& read) {
  DataSpec spec;
  spec.read = read;
  spec.inputs = {{"x", {}, false, 0, {}}};
  spec.outputs = {{"y", {}, true, 0, {}}};
  PLIMSOLL_ASSIGN(const auto named, parse_features(read.features));
  const bool text = std::any_of(named.begin(), named.end(), [](const NamedFeature& one) { return one.text; }) ||
                    (is_folder(argument) && !list_images(argument, false) && list_texts(argument, false));
  if (text) {
    spec.inputs[0].text = std::make_shared<const TextInput>();
    return spec;
  }
  // Only pictures and records need to know the shape.
  PLIMSOLL_ASSIGN(const auto records, record_files(argument));
  if (is_folder(argument) || !records.empty()) {
    PLIMSOLL_ASSIGN(auto sample, sample_shape(argument, spec.inputs[0], true, spec));
    PLIMSOLL_ASSIGN(spec.inputs[0].sample, checked_shape(std::move(sample), argument));
  }
  return spec;
}

}  // namespace

Result<std::vector<NamedColumn>> open_columns(const std::string& argument, const ReadOptions& read, bool all) {
  const auto chosen = chosen_arrays(argument);
  if (chosen && all) return columns_of(*chosen->format, chosen->path, chosen->names);
  const auto paths = split_at_commas(argument);
  const bool one_file = paths.size() == 1 && !paths[0].empty() && !chosen && !is_folder(paths[0]);
  if (one_file && all)
    if (const ArrayFormat* format = array_format_of_name(paths[0]); format != nullptr && format->has_names()) {
      PLIMSOLL_ASSIGN(const auto names, format->names(paths[0]));
      return columns_of(*format, paths[0], names);
    }
  PLIMSOLL_ASSIGN(DataSpec spec, spec_without_model(argument, read));
  spec.needs_targets =
      chosen ? chosen->names.size() > 1
             : !(one_file && array_format_of_name(paths[0]) != nullptr && !array_format_of_name(paths[0])->has_names());
  auto found = find_arrays(argument, spec);
  if (!found && spec.needs_targets) {  // inputs alone
    spec.needs_targets = false;
    auto inputs = find_arrays(argument, spec);
    if (!inputs) return tl::make_unexpected(std::move(found.error()));
    if (read.note) read.note(argument + ": no targets were found; only the inputs are read");
    found = std::move(inputs);
  }
  PLIMSOLL_TRY(found);
  std::vector<NamedColumn> columns;
  const auto add = [&](const char* name, FoundArray array) -> Status {
    PLIMSOLL_ASSIGN(auto column, named_column(name, std::move(array)));
    if (!columns.empty() && column.rows != columns[0].rows)
      return fail(ErrorCode::kDataLengths, fmt::format("{} holds {} samples, {} holds {}", columns[0].column.label,
                                                       columns[0].rows, column.column.label, column.rows));
    columns.push_back(std::move(column));
    return {};
  };
  PLIMSOLL_TRY(add("x", std::move(found->inputs[0])));
  if (!found->targets.empty()) PLIMSOLL_TRY(add("y", std::move(found->targets[0])));
  if (!found->weights.empty() && found->weights[0]) PLIMSOLL_TRY(add("sample_weight", std::move(*found->weights[0])));
  if (columns[0].rows > 0) return columns;
  return fail(ErrorCode::kDataEmpty, columns[0].column.label + " holds no samples");
}

Result<DataSet> open_data(const std::string& argument, const DataSpec& spec) {
  if (!reads_text(spec)) {
    PLIMSOLL_ASSIGN(auto found, find_arrays(argument, spec));
    return match_arrays(std::move(found), spec);
  }
  DataSpec of_data = spec;
  of_data.inputs = ports_of_data(spec.inputs);
  PLIMSOLL_ASSIGN(auto found, find_arrays(argument, of_data));
  PLIMSOLL_ASSIGN(found.inputs, numbers_of_strings(std::move(found.inputs), spec.inputs));
  return match_arrays(std::move(found), spec);
}

}  // namespace plimsoll::engine
