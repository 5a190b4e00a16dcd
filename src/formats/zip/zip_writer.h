// Writes a zip archive of stored entries, as Keras does: without compression, as a stream, with ZIP64 where sizes
// require it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  // Adds an entry of exactly `bytes`, which `produce` passes to its sink.
  Status add(const std::string& name, int64_t bytes, const std::function<Status(const Sink&)>& produce);
  // Adds an entry that `produce` writes at the position of the file, in any order. `produce` must leave the position at
  // the entry's end. `expected` is the approximate size.
  Status add_in_place(const std::string& name, int64_t expected, const std::function<Status()>& produce);
  Status add_text(const std::string& name, std::string_view text);
  Status finish();  // writes the directory; the caller commits the file

 private:
  struct Written {
    std::string name;
    int64_t bytes = 0, offset = 0;
    uint32_t crc32 = 0;
  };
  // Called twice per entry: first at the position of the file, then to overwrite the first header.
  Status write_header(const Written& entry, bool large);
  AtomicFile& file_;
  std::vector<Written> entries_;
};

}  // namespace plimsoll::engine
