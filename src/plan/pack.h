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

// Packs the items as low as `most_work` allows, and no lower than `enough` where that is more than the largest live
// set. First fit on several orders of the items comes first, then a search for lower packings (pack_eject.h), and for
// up to some hundred items a complete search (pack_canonical.h), which proves for small problems that none is lower.
// `most_work` counts steps of these searches, not time: the same items always give the same packing.
Packing pack(const std::vector<PackItem>& items, int64_t most_work = 8'000'000, Bytes enough = 0);

}  // namespace plimsoll::engine
