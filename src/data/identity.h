// Identifies a data set without reading all of it.
#pragma once

#include "base/json.h"
#include "data/dataset.h"

namespace plimsoll::engine {

// Returns, for each array, a description ("640 samples of [8, 8, 1] float32, 163840 bytes") and a digest of its
// contents. The keys are suitable for messages: {"input 1": ..., "contents of input 1": ...}. The digest of an array of
// up to 1 MiB reads all of it. For a larger array it reads 64 evenly spaced pieces of 16 KiB, including the first and
// the last. Names and locations of the files do not matter.
Result<nlohmann::json> data_identity(const DataSet& data);

}  // namespace plimsoll::engine
