// IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist), plain or gzipped. Its numbers are big-endian. One-byte
// elements are read in place; wider elements and gzipped files are unpacked once into the cache.
#pragma once

#include <string>

#include "formats/file/array_source.h"

namespace plimsoll::engine {

Result<ArraySource> open_idx(const std::string& path);

}  // namespace plimsoll::engine
