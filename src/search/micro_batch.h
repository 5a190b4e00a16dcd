// The levers that split the batch: micro-batches, and BatchNormalization statistics per micro-batch.
#pragma once

#include "search/remedies.h"

namespace plimsoll::engine {

// kMicroBatch is declared in plan/plan.h, because a plan's batch depends on it.
inline constexpr std::string_view kPerMicroBatchNorm = "per-micro-batch-norm";
inline constexpr int64_t kPerMicroBatchNormValues[] = {1};

// How many sizes of micro-batches to try: ceil(batch / k) for k = 1, 2, ... 8, then about 1.25 times the last one; or
// for the powers of 2 or of 4 alone.
enum class Cuts : uint8_t { kFine, kTwofold, kFourfold };

// Returns the micro-batch sizes to try, as far as the request allows splitting. The last is the same for all cuts.
std::vector<int64_t> micro_batches(const SearchRequest& request, Cuts cuts);

// Returns `settings` with micro-batches of `micro` samples, and with statistics per micro-batch if the user allowed it.
LeverSettings cut_into(const SearchRequest& request, int64_t micro, const LeverSettings& settings = {});
int64_t micro_batch_of(const SearchRequest& request, const LeverSettings& settings);

// Fails with P302 if the user's --micro-batch would change what BatchNormalization computes.
Status check_micro_batch(const SearchRequest& request);

int64_t accumulation_steps(const Plan& plan);  // 0: the batch is not split
std::optional<Remedy> batchnorm_remedy(const SearchRequest& request, const SearchResult& result);

}  // namespace plimsoll::engine
