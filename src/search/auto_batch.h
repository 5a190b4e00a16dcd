// --batch-size auto.
#pragma once

#include <functional>

#include "search/search.h"

namespace plimsoll::engine {

// The limit where no data set bounds the batch: a larger one makes no machine busier.
constexpr int64_t kLargestAutomaticBatch = 65536;

// The largest power of two, at most `samples` (0: unknown) over the whole window, whose batch runs in one piece inside
// the budget without a lever that costs time. 1 if none does: search then finds what levers can do for it.
// `request_of` makes the request for a batch of that size.
Result<int64_t> largest_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples);

}  // namespace plimsoll::engine
