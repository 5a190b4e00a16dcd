#include "formats/zip/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kLongestComment = 0xffff;
constexpr uint64_t kLargestRatio = 1032;  // the largest ratio of deflate: 258 bytes from two bits

struct Extent {
  uint64_t entries = 0, bytes = 0, offset = 0;
};

class DirectoryReader {
 public:
  DirectoryReader(const File& file, ErrorCode bad) : file_(file), bad_(bad) {}

  Result<std::vector<ZipEntry>> read() {
    PLIMSOLL_ASSIGN(const Extent extent, find());
    std::vector<std::byte> bytes(extent.bytes);
    PLIMSOLL_TRY(file_.pread_exact(static_cast<int64_t>(extent.offset), bytes));
    std::vector<ZipEntry> entries;
    std::span<const std::byte> rest(bytes);
    for (uint64_t i = 0; i < extent.entries; ++i) {
      PLIMSOLL_ASSIGN(auto entry, next(rest));
      entries.push_back(std::move(entry));
    }
    PLIMSOLL_TRY(check_names(entries));
    return entries;
  }

 private:
  tl::unexpected<Error> broken(std::string_view what) const {
    Error error{bad_, fmt::format("{}: {}", file_.path(), what), {}, {}};
    error.fact("expected: a complete zip archive; .keras and .npz files are zip archives");
    return fail(std::move(error.remedy("copy or write the file again")));
  }

  // Rejects archives with two entries of one name. Python reads the last one, other programs the first, but the model
  // planned here must be the model that Keras loads.
  Status check_names(const std::vector<ZipEntry>& entries) const {
    std::vector<std::string_view> names;
    names.reserve(entries.size());
    for (const auto& entry : entries) names.emplace_back(entry.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) return broken(fmt::format("two entries are named {}", *twice));
    return {};
  }

  // Only a comment of unknown length may follow the end record, so the file is searched from the end.
  Result<Extent> find() {
    const int64_t span = std::min(file_.size(), kZipEndBytes + kLongestComment);
    std::vector<std::byte> tail(static_cast<size_t>(span));
    PLIMSOLL_TRY(file_.pread_exact(file_.size() - span, tail));
    for (int64_t at = span - kZipEndBytes; at >= 0; --at) {
      const auto record = std::span<const std::byte>(tail).subspan(static_cast<size_t>(at));
      if (zip_integer<uint32_t>(record, 0) != kZipEnd) continue;
      if (at + kZipEndBytes + zip_integer<uint16_t>(record, 20) != span) continue;
      return extent(record, file_.size() - span + at);
    }
    std::array<std::byte, 4> start{};
    if (file_.size() >= 4) PLIMSOLL_TRY(file_.pread_exact(0, start));
    if (zip_integer<uint32_t>(start, 0) == kZipLocalHeader)
      return broken(
          fmt::format("the archive is truncated: there is no directory at the end of its {} bytes", file_.size()));
    return broken("it is not a zip archive");
  }

  Result<Extent> extent(std::span<const std::byte> record, int64_t record_offset) {
    Extent found{zip_integer<uint16_t>(record, 10), zip_integer<uint32_t>(record, 12),
                 zip_integer<uint32_t>(record, 16)};
    if (zip_integer<uint16_t>(record, 4) != 0) return broken("the archive is split over several files");
    int64_t end = record_offset;
    if (found.entries == 0xffff || found.bytes == 0xffffffff || found.offset == 0xffffffff)
      PLIMSOLL_TRY(extent64(record_offset, found, end));
    if (found.bytes > static_cast<uint64_t>(end) || found.offset > static_cast<uint64_t>(end) - found.bytes ||
        found.entries > found.bytes / kZipDirectoryBytes)
      return broken(fmt::format("the directory ({} entries, {} bytes at {}) lies outside the file", found.entries,
                                found.bytes, found.offset));
    if (found.entries > static_cast<uint64_t>(limits::kZipEntries) ||
        found.bytes > static_cast<uint64_t>(limits::kZipDirectoryBytes))
      return broken(fmt::format("the directory has {} entries in {} bytes; the limit is {} entries in {} bytes",
                                found.entries, found.bytes, limits::kZipEntries, limits::kZipDirectoryBytes));
    return found;
  }

  // Values too large for the end record are in the ZIP64 end record. The locator right before the end record points to
  // it.
  Status extent64(int64_t record_offset, Extent& found, int64_t& end) {
    std::array<std::byte, kZip64LocatorBytes> locator{};
    if (record_offset < kZip64LocatorBytes) return {};
    PLIMSOLL_TRY(file_.pread_exact(record_offset - kZip64LocatorBytes, locator));
    // No ZIP64 record: the values in the end record are the real ones.
    if (zip_integer<uint32_t>(locator, 0) != kZip64Locator) return {};
    const auto at = zip_integer<uint64_t>(locator, 8);
    std::array<std::byte, kZip64EndBytes> record{};
    if (record_offset < kZip64LocatorBytes + kZip64EndBytes ||
        at > static_cast<uint64_t>(record_offset - kZip64LocatorBytes - kZip64EndBytes))
      return broken("the ZIP64 end record lies outside the file");
    PLIMSOLL_TRY(file_.pread_exact(static_cast<int64_t>(at), record));
    if (zip_integer<uint32_t>(record, 0) != kZip64End)
      return broken(fmt::format("there is no ZIP64 end record at byte {}", at));
    found = {zip_integer<uint64_t>(record, 32), zip_integer<uint64_t>(record, 40), zip_integer<uint64_t>(record, 48)};
    end = static_cast<int64_t>(at);
    return {};
  }

  Result<ZipEntry> next(std::span<const std::byte>& rest) {
    if (rest.size() < static_cast<size_t>(kZipDirectoryBytes) || zip_integer<uint32_t>(rest, 0) != kZipDirectoryHeader)
      return broken("the directory is damaged");
    const size_t name = zip_integer<uint16_t>(rest, 28), extra = zip_integer<uint16_t>(rest, 30),
                 comment = zip_integer<uint16_t>(rest, 32);
    const size_t total = static_cast<size_t>(kZipDirectoryBytes) + name + extra + comment;
    if (rest.size() < total) return broken("the directory is damaged");
    const auto name_bytes = rest.subspan(kZipDirectoryBytes, name);
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(name_bytes.data()), name);
    const auto method = zip_integer<uint16_t>(rest, 10);
    if ((zip_integer<uint16_t>(rest, 8) & 1) != 0) return broken(fmt::format("entry {} is encrypted", entry.name));
    if (method != 0 && method != 8)
      return broken(fmt::format("entry {} is compressed with method {}, expected stored (0) or deflated (8)",
                                entry.name, method));
    entry.deflated = method == 8;
    entry.crc32 = zip_integer<uint32_t>(rest, 16);
    uint64_t sizes[3] = {zip_integer<uint32_t>(rest, 24), zip_integer<uint32_t>(rest, 20),
                         zip_integer<uint32_t>(rest, 42)};
    read_extra(rest.subspan(static_cast<size_t>(kZipDirectoryBytes) + name, extra), sizes);
    const auto file_bytes = static_cast<uint64_t>(file_.size());
    if (sizes[0] > uint64_t{1} << 62 || sizes[1] > file_bytes || sizes[2] > file_bytes ||
        (!entry.deflated && sizes[0] != sizes[1]))
      return broken(fmt::format("entry {} lies outside the file", entry.name));
    if (entry.deflated && sizes[0] / kLargestRatio > sizes[1])
      return broken(
          fmt::format("entry {}: {} compressed bytes cannot decompress to {}", entry.name, sizes[1], sizes[0]));
    entry.bytes = static_cast<int64_t>(sizes[0]);
    entry.compressed_bytes = static_cast<int64_t>(sizes[1]);
    entry.header_offset = static_cast<int64_t>(sizes[2]);
    rest = rest.subspan(total);
    return entry;
  }

  // ZIP64: for each of size, compressed size and offset that is 0xffffffff, the real value follows here as 64 bits, in
  // this order.
  static void read_extra(std::span<const std::byte> extra, uint64_t (&sizes)[3]) {
    while (extra.size() >= 4) {
      const auto id = zip_integer<uint16_t>(extra, 0);
      const size_t length = std::min<size_t>(zip_integer<uint16_t>(extra, 2), extra.size() - 4);
      auto body = extra.subspan(4, length);
      for (auto& value : sizes) {
        if (id != kZip64Extra || value != 0xffffffff || body.size() < 8) continue;
        value = zip_integer<uint64_t>(body, 0);
        body = body.subspan(8);
      }
      extra = extra.subspan(4 + length);
    }
  }

  const File& file_;
  ErrorCode bad_;
};

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(const File& file, ErrorCode bad) {
  return DirectoryReader(file, bad).read();
}

}  // namespace plimsoll::engine
