// Reads zip archives (APPNOTE.TXT 6.3.9), including ZIP64. Plimsoll has its own reader because arrays of an .npz are
// read in place: that needs the offset of an entry's bytes, which zip libraries do not expose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

struct ZipEntry {
  std::string name;
  bool deflated = false;  // false: stored uncompressed
  int64_t compressed_bytes = 0;
  int64_t bytes = 0;
  uint32_t crc32 = 0;
  int64_t header_offset = 0;  // offset of its local header
};

class ZipReader {
 public:
  // Reads the directory. `bad` is the error code for an invalid archive (an unreadable file has its own code).
  static Result<ZipReader> open(const std::string& path, ErrorCode bad);

  const File& file() const { return file_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;

  // Returns the offset of the entry's bytes, which is checked to lie inside the file.
  Result<int64_t> data_offset(const ZipEntry& entry) const;
  // Passes the decompressed entry to `sink` through fixed buffers. Fails if its length or CRC32 differs from the
  // directory.
  Status extract(const ZipEntry& entry, const Sink& sink) const;
  // Returns a small entry as text. Fails if it is larger than `most`.
  Result<std::string> text(const ZipEntry& entry, int64_t most) const;

 private:
  Status inflate(const ZipEntry& entry, int64_t offset, const Sink& sink) const;
  File file_;
  ErrorCode bad_ = ErrorCode::kInternal;
  std::vector<ZipEntry> entries_;
};

}  // namespace plimsoll::engine
