// A CSV file: one column is the label, the others are the numbers of one input. It is unpacked once into the cache, as
// two arrays of float32.
#pragma once

#include <string>
#include <vector>

#include "data/match.h"

namespace plimsoll::engine {

bool is_csv(const std::string& path);  // by the end of its name: .csv or .tsv

// ReadOptions has the label column and what a missing value becomes. Labels that are texts become the numbers of their
// places in the sorted list of all of them, which ReadOptions::note says. Fails with P401 for a damaged line, P403 for
// a missing value, P201 if the model has several inputs or the label column does not exist.
Result<FoundArrays> open_csv(const std::string& path, const DataSpec& spec);

}  // namespace plimsoll::engine
