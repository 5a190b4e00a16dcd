// Reads all elements of an ArraySource, as the data stage does.
#pragma once

#include <algorithm>
#include <vector>

#include "formats/file/array_source.h"
#include "formats/file/file.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {

inline void read_array(const ArraySource& array) {
  const auto file = File::open_read(array.path);
  if (!file) found(to_text(file.error()));
  const Bytes bytes = array.bytes();
  if (bytes < 0 || array.offset < 0 || bytes > file->size() - array.offset)
    found("an array that lies outside its file");
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<Bytes>(bytes, kMiB)));
  if (const Status read = file->pread_exact(array.offset, buffer); !read) found(to_text(read.error()));
}

}  // namespace plimsoll::engine::fuzz
