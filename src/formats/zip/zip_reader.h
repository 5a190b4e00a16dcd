// Reads zip archives (APPNOTE.TXT 6.3.9), ZIP64 too. By hand, because arrays of an .npz are read in place and for that
// the offset of an entry's bytes is needed, which zip libraries keep to themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

struct ZipEntry {
  std::string name;
  bool deflated = false;  // otherwise stored as it is
  int64_t compressed_bytes = 0;
  int64_t bytes = 0;
  uint32_t crc32 = 0;
  int64_t header_offset = 0;  // of its local header
};

class ZipReader {
 public:
  // Reads the directory. `bad` is the code of what is wrong with the archive (not of an unreadable file).
  static Result<ZipReader> open(const std::string& path, ErrorCode bad);

  const File& file() const { return file_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;

  // Where the entry's bytes lie in the file; checked to lie inside it.
  Result<int64_t> data_offset(const ZipEntry& entry) const;
  // Streams the entry unpacked through fixed buffers; fails when its length or CRC32 is not what the directory says.
  Status extract(const ZipEntry& entry, const Sink& sink) const;
  // A small entry as text; fails when it is larger than `most`.
  Result<std::string> text(const ZipEntry& entry, int64_t most) const;

 private:
  Status inflate(const ZipEntry& entry, int64_t offset, const Sink& sink) const;
  File file_;
  ErrorCode bad_ = ErrorCode::kInternal;
  std::vector<ZipEntry> entries_;
};

}  // namespace plimsoll::engine
