// The central directory of a zip archive.
#pragma once

#include <vector>

#include "formats/zip/zip_reader.h"

namespace plimsoll::engine {

inline constexpr uint32_t kZipLocalHeader = 0x04034b50;
inline constexpr uint32_t kZipDirectoryHeader = 0x02014b50;
inline constexpr uint32_t kZipEnd = 0x06054b50;
inline constexpr uint32_t kZip64End = 0x06064b50;
inline constexpr uint32_t kZip64Locator = 0x07064b50;
inline constexpr uint16_t kZip64Extra = 1;
inline constexpr int64_t kZipLocalBytes = 30;
inline constexpr int64_t kZipDirectoryBytes = 46;
inline constexpr int64_t kZipEndBytes = 22;
inline constexpr int64_t kZip64EndBytes = 56;
inline constexpr int64_t kZip64LocatorBytes = 20;

Result<std::vector<ZipEntry>> read_zip_directory(const File& file, ErrorCode bad);

// Returns the little-endian integer at byte `at`.
template <typename T>
T zip_integer(std::span<const std::byte> bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | std::to_integer<T>(bytes[at + i]) << (8 * i));
  return value;
}

}  // namespace plimsoll::engine
