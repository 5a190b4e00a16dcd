// Writes the arrays of a stream in the formats that Plimsoll reads. No file appears under its name before all of them
// are complete.
#pragma once

#include <string>
#include <vector>

#include "data/array_stream.h"

namespace plimsoll::engine {

struct WriteOptions {
  int64_t shards = 1;                                        // files of TFRecord
  std::function<Status(int64_t done, int64_t of)> progress;  // in rows; may be empty; an error ends the copy
};

// `target` is OUT.npz, OUT.safetensors, OUT.tfrecord (OUT-00000-of-00004.tfrecord for several shards), OUT.csv, or
// X.npy,Y.npy with one name per array. Returns the names of the files. Fails with P201 for another ending.
Result<std::vector<std::string>> write_arrays(ArrayStream& from, const std::string& target,
                                              const WriteOptions& options);

// Fails as write_arrays() would for this target, before anything is read.
Status check_target(const std::string& target);

}  // namespace plimsoll::engine
