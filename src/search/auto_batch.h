// Chooses the batch size for --batch-size auto.
#pragma once

#include <functional>

#include "search/search.h"

namespace plimsoll::engine {

// The limit if no data set bounds the batch. Larger batches do not use any machine better.
constexpr int64_t kLargestAutomaticBatch = 65536;

// Returns the largest power of two whose batch fits the budget without splitting and without a lever that costs time.
// A whole window has at most `samples` samples (0: unknown). Returns 1 if no batch fits; search then tries the levers.
// `request_of` makes the request for a batch size.
Result<int64_t> largest_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples);

}  // namespace plimsoll::engine
