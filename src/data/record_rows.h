// TFRecord files of tf.train.Example, plain or gzipped: raw bytes, encoded pictures, and lists of floats or integers of
// a fixed length.
#pragma once

#include <string>
#include <vector>

#include "data/match.h"

namespace plimsoll::engine {

// Returns the files of `argument`, which may be a pattern (train-*.tfrecord), sorted. None: these are no TFRecords.
Result<std::vector<std::string>> record_files(const std::string& argument);

// Infers from the first record what each feature holds, and which of them the model's inputs and outputs take
// (ReadOptions::features overrides it). Says what it found through ReadOptions::note. Fails with P401 if a file is
// damaged, P201 if a feature is not found.
Result<FoundArrays> open_records(const std::vector<std::string>& files, const DataSpec& spec);
Result<std::vector<int64_t>> record_sample_shape(const std::vector<std::string>& files, const PortSpec& input,
                                                 bool only, const DataSpec& with);

}  // namespace plimsoll::engine
