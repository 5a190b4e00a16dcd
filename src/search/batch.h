// --batch-size auto.
#pragma once

#include <functional>

#include "search/search.h"

namespace plimsoll {

// Where no data set bounds the batch: beyond this a larger one makes no machine busier.
constexpr int64_t kLargestAutomaticBatch = 65536;

// The largest power of two, at most `samples` (0: unknown) over the whole window, whose batch runs in one piece inside
// the budget without a lever that costs time. 1 if none does: what levers can do for a single sample, the search finds.
// `request_of` makes the request for a batch of that size.
Result<int64_t> largest_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples);

}  // namespace plimsoll
