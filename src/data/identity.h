// What tells one data set from another without reading all of it.
#pragma once

#include "base/json.h"
#include "data/dataset.h"

namespace plimsoll::engine {

// Of each array what it is ("640 samples of [8, 8, 1] float32, 163840 bytes") and a digest of its contents, under keys
// that a message can name: {"input 1": ..., "contents of input 1": ...}. The digest reads the whole of an array of up
// to 1 MiB, of a larger one 64 pieces of 16 KiB, the first, the last and those evenly between. Where the files lie and
// how they are called makes no difference.
Result<nlohmann::json> data_identity(const DataSet& data);

}  // namespace plimsoll::engine
