#include "formats/npz/npz.h"

#include <fmt/format.h>

#include <string_view>

#include "formats/array_formats.h"
#include "formats/file/cache.h"
#include "formats/npy/npy.h"
#include "formats/zip/zip_reader.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kSuffix = ".npy";

Result<ArraySource> unpack_once(const ZipReader& zip, const ZipEntry& entry, const std::string& label) {
  const auto fill = [&](const std::string& path) -> Status {
    PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
    PLIMSOLL_TRY(file.reserve(entry.bytes));
    PLIMSOLL_TRY(zip.extract(entry, [&](std::span<const std::byte> piece) { return file.write(piece); }));
    return file.commit();
  };
  PLIMSOLL_ASSIGN(const std::string path, cached_file(zip.file(), entry.name, fill));
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  return read_npy(file, 0, file.size(), label);
}

bool is_compressed(const std::string& path, const std::string& name) {
  const auto zip = ZipReader::open(path, ErrorCode::kBadDataFile);
  const auto* entry = zip ? zip->find(name + std::string(kSuffix)) : nullptr;
  return entry == nullptr || entry->deflated;
}

}  // namespace

Result<std::vector<std::string>> npz_names(const std::string& path) {
  PLIMSOLL_ASSIGN(const ZipReader zip, ZipReader::open(path, ErrorCode::kBadDataFile));
  std::vector<std::string> names;
  for (const auto& entry : zip.entries())
    if (entry.name.ends_with(kSuffix)) names.push_back(entry.name.substr(0, entry.name.size() - kSuffix.size()));
  return names;
}

Result<ArraySource> open_npz(const std::string& path, const std::string& name) {
  PLIMSOLL_ASSIGN(const ZipReader zip, ZipReader::open(path, ErrorCode::kBadDataFile));
  const auto label = fmt::format("{}: {}", path, name);
  const auto* entry = zip.find(name + std::string(kSuffix));
  if (entry == nullptr) {
    PLIMSOLL_ASSIGN(const auto names, npz_names(path));
    Error error{ErrorCode::kBadDataFile, fmt::format("{} has no array '{}'", path, name), {}, {}};
    return fail(std::move(error.fact(fmt::format("its arrays: {}", fmt::join(names, ", ")))));
  }
  if (entry->deflated) return unpack_once(zip, *entry, label);
  PLIMSOLL_ASSIGN(const int64_t offset, zip.data_offset(*entry));
  return read_npy(zip.file(), offset, entry->bytes, label);
}

extern const ArrayFormat kNpzFormat;
constinit const ArrayFormat kNpzFormat = {
    .name = ".npz",
    .endings = ".npz",
    .begins = [](std::string_view start) { return start.starts_with("PK"); },
    .help_pair = "an .npz",
    .help_one = "an .npz",
    .names = npz_names,
    .open_named = open_npz,
    .packed = is_compressed,
    .write_pair = "np.savez(file, x=inputs, y=targets)",
    .write_named = "np.savez(file, **{name: array, ...})",
};

}  // namespace plimsoll::engine
