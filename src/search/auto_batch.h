// Chooses the batch size for --batch-size auto.
#pragma once

#include <functional>

#include "search/search.h"

namespace plimsoll::engine {

// The limit if no data set bounds the batch. Larger batches do not use any machine better.
constexpr int64_t kLargestAutomaticBatch = 65536;

struct BestBatch {
  int64_t size = 1;
  // Time per sample of twice the size over that of `size`; 0: twice the size does not fit, or was not looked at.
  double next_times = 0;
};

// Returns the power of two whose plan takes the least time per sample, among those that fit the budget. All levers are
// used but those that cut the batch: pieces take as long per sample as a batch of their size, so cutting would only
// hide which batch is fastest. A whole window has at most `samples` samples (0: unknown). Returns 1 if no batch fits;
// search then tries all levers. `request_of` makes the request for a batch size.
Result<BestBatch> best_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples);

}  // namespace plimsoll::engine
