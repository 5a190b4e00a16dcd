// The levers that cut the batch: micro-batches, and statistics of BatchNormalization per micro-batch.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

// kMicroBatch is named in plan/plan.h: a plan's batch depends on it.
inline constexpr std::string_view kPerMicroBatchNorm = "per-micro-batch-norm";
inline constexpr int64_t kPerMicroBatchNormValues[] = {1};

// Samples of a micro-batch to try: ceil(batch / k) for k = 1, 2, 4, ..., as far as the request allows cutting.
std::vector<int64_t> micro_batches(const SearchRequest& request);

// `settings` with the batch cut into pieces of `micro`; the statistics follow, where the user allowed it.
LeverSettings cut_into(const SearchRequest& request, int64_t micro, const LeverSettings& settings = {});
int64_t micro_batch_of(const SearchRequest& request, const LeverSettings& settings);

// P302 where the user's own --micro-batch would change what BatchNormalization computes.
Status check_micro_batch(const SearchRequest& request);

int64_t accumulation_steps(const Plan& plan);  // 0: the batch is not cut
void add_batchnorm_remedy(const SearchRequest& request, const SearchResult& result, Error& error);

}  // namespace plimsoll::engine
