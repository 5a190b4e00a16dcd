#include "search/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace plimsoll::engine {
namespace {

std::vector<std::string> layer_list(const std::vector<std::string>& names) {
  std::vector<std::string> list(names.begin(), names.begin() + std::min<long>(3, static_cast<long>(names.size())));
  if (names.size() > list.size()) list.push_back(fmt::format("{} others", names.size() - list.size()));
  return list;
}

// The powers of 2 are among the results.
int64_t next_fine(int64_t k) {
  if (k < 8) return k + 1;
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(k + 1))), k + k / 4);
}

}  // namespace

std::vector<int64_t> micro_batches(const SearchRequest& request, Cuts cuts) {
  if (request.batch == 0) return {0};
  const int64_t piece = request.piece();
  if (request.micro_batch) return {std::min(*request.micro_batch, piece)};
  std::vector<int64_t> list = {piece};
  const bool exact_norm = request.model->couples_samples() && !request.per_micro_batch_norm;
  if (request.forbids(kMicroBatch) || exact_norm) return list;
  for (int64_t k = 1; list.back() > 1;) {
    k = cuts == Cuts::kFourfold ? 4 * k : cuts == Cuts::kTwofold ? 2 * k : next_fine(k);
    const int64_t micro = (piece + k - 1) / k;
    if (micro != list.back()) list.push_back(micro);
  }
  return list;
}

LeverSettings cut_into(const SearchRequest& request, int64_t micro, const LeverSettings& settings) {
  const bool cut = micro < request.batch;
  LeverSettings result = settings.with(kMicroBatch, cut ? micro : 0);
  result.set(kPerMicroBatchNorm, cut && request.per_micro_batch_norm && request.model->couples_samples() ? 1 : 0);
  return result;
}

int64_t micro_batch_of(const SearchRequest& request, const LeverSettings& settings) {
  return batch_of(request.batch, settings).micro;
}

Status check_micro_batch(const SearchRequest& request) {
  if (!request.micro_batch || *request.micro_batch * request.accumulation_steps >= request.batch || request.batch == 0)
    return {};
  if (!request.model->couples_samples() || request.per_micro_batch_norm) return {};
  return fail(
      Error{ErrorCode::kBatchNormForbidsMicroBatch,
            fmt::format("--micro-batch {} would change what this model's normalisation computes", *request.micro_batch),
            {fmt::format("these layers use statistics of the whole batch of {} in training: {}", request.batch,
                         fmt::join(layer_list(request.model->coupling_layers()), ", "))},
            {fmt::format("--batchnorm per-micro-batch   allows it, but changes training: statistics of {} samples",
                         *request.micro_batch),
             "remove --micro-batch   processes the whole batch at once, exact"}});
}

int64_t accumulation_steps(const Plan& plan) {
  return plan.batch.micro < plan.batch.effective ? plan.batch.accumulation_steps() : 0;
}

std::optional<Remedy> batchnorm_remedy(const SearchRequest& request, const SearchResult& result) {
  if (request.batch <= 1 || !request.model->couples_samples() || request.per_micro_batch_norm) return std::nullopt;
  Freed freed(request);
  freed.request.per_micro_batch_norm = true;
  freed.free_micro_batch();
  const std::string flags = "--batchnorm per-micro-batch";
  auto remedy = remedy_of(freed, flags, result);
  if (!remedy) {
    freed.free_levers();
    remedy = remedy_of(std::move(freed), flags, result);
  }
  if (remedy) remedy->changes = "training: statistics per micro-batch";
  return remedy;
}

}  // namespace plimsoll::engine
