// Packing: computes the offset of each buffer from its live range. Input and output are plain data, so that the solver
// can be tested, fuzzed and replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

struct PackItem {
  Bytes bytes = 0;          // a multiple of kAlignment
  int first = 0, last = 0;  // first and last step in which it is live
};

struct Packing {
  std::vector<Bytes> offsets;
  Bytes height = 0;
};

// Returns the largest sum of bytes that are live in one step. No packing is lower than that. `step` receives the step.
Bytes largest_live_set(const std::vector<PackItem>& items, int* step = nullptr);

// Runs first fit on several orders of the items, then a local search on the best of them. `most_work` limits the
// search; one round costs about one unit per pair of items. The same items always give the same packing.
Packing pack(const std::vector<PackItem>& items, int64_t most_work = 20'000'000);

}  // namespace plimsoll::engine
