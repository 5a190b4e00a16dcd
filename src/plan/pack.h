// Packing: where each buffer lies, given when it lives. Plain data in and out, so that a solver can be tested, fuzzed,
// replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

struct PackItem {
  Bytes bytes = 0;          // a multiple of kAlignment
  int first = 0, last = 0;  // steps in which it lives, both included
};

struct Packing {
  std::vector<Bytes> offsets;
  Bytes height = 0;
};

// The largest sum of bytes alive in one step: no packing is lower. `step` receives where it occurs.
Bytes largest_live_set(const std::vector<PackItem>& items, int* step = nullptr);

// First fit under several orders of the items, then a local search on the best of them, limited by work (about one a
// pair of items and round). The same items give the same packing.
Packing pack(const std::vector<PackItem>& items, int64_t most_work = 20'000'000);

}  // namespace plimsoll::engine
