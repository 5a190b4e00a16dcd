// A table of sorted keys and values in LevelDB's format, in which TensorFlow stores the index of a checkpoint.
// The format: https://github.com/google/leveldb/blob/main/doc/table_format.md
#pragma once

#include <functional>
#include <string>

#include "formats/file/file.h"

namespace plimsoll::engine {

// Both views are valid only during the call.
using TakeEntry = std::function<Status(std::string_view key, std::span<const std::byte> value)>;

// Passes all entries to `take`, block by block. Fails with P213 if the file is no such table, is damaged, compressed
// (TensorFlow does not compress it) or exceeds the limits of limits.h. Checksums of blocks are not verified: everything
// in them is checked, and the tensors have checksums of their own.
Status read_table(const File& file, const std::string& label, const TakeEntry& take);

}  // namespace plimsoll::engine
