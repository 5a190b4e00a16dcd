// Unpacks a gzipped file as a stream.
#pragma once

#include "formats/file/file.h"

namespace plimsoll::engine {

bool is_gzip(std::string_view start);

// Passes the contents to `sink` in pieces. Fails with P401 if the file is damaged or cut short, or if the contents have
// more than `most` bytes. Holds two buffers of kStreamBuffer bytes and zlib's window.
Status gunzip(const File& file, int64_t most, const Sink& sink);

// Returns the path of the unpacked contents, which the cache holds.
Result<std::string> unpacked_file(const File& file);

}  // namespace plimsoll::engine
