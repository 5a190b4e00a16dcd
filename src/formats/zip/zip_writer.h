// Writes a zip archive of stored entries, as Keras does: no deflate, streaming, ZIP64 where sizes ask for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  // An entry of exactly `bytes`, which `produce` hands to the sink it is given.
  Status add(const std::string& name, int64_t bytes, const std::function<Status(const Sink&)>& produce);
  // An entry that `produce` writes at the position of the file, in whatever order, and leaves that at the entry's end.
  // `expected` tells about how large it will be.
  Status add_in_place(const std::string& name, int64_t expected, const std::function<Status()>& produce);
  Status add_text(const std::string& name, std::string_view text);
  Status finish();  // the directory; the caller commits the file

 private:
  struct Written {
    std::string name;
    int64_t bytes = 0, offset = 0;
    uint32_t crc32 = 0;
  };
  Status write_header(const Written& entry, bool large);  // first time at the position, then over the first
  AtomicFile& file_;
  std::vector<Written> entries_;
};

}  // namespace plimsoll::engine
