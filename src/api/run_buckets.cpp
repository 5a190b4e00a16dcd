// Runs whose sequences vary in length: one plan per length, the longest first.
#include <algorithm>

#include "api/bucket_windows.h"
#include "api/run.h"

namespace plimsoll::engine {

Result<SearchRequest> Run::bucket_request(const Model& model, int64_t samples, bool validates) const {
  DataOutline outline = data_.outline;
  outline.samples = samples;
  outline.validates = outline.validates && validates;
  return make_request(options_, model, *backend_, outline, budget_);
}

// The longest plan leaves room for what the others need outside of the arena.
Status Run::plan_all_buckets(const GivenPlan* given) {
  PLIMSOLL_TRY(plan_one(given));
  const Bytes budget = request_->budget, reserve = reserve_for(*buckets_, planned_device(), found_.plan);
  const Bytes together = found_.plan.peak_bytes() + reserve;
  if (budget > 0 && given == nullptr && together > budget) {
    request_->budget = std::max<Bytes>(budget - reserve, 1);
    const Status again = plan_one(nullptr);
    request_->budget = budget;
    if (!again && again.error().code == ErrorCode::kDoesNotFit) return check_together(*buckets_, together, budget);
    PLIMSOLL_TRY(again);
  }
  const auto request_of = [&](const Model& model, int64_t samples) { return bucket_request(model, samples, false); };
  SearchRequest all = *request_;
  if (budget > 0) all.budget = std::max<Bytes>(budget - reserve, 1);
  PLIMSOLL_TRY(within_planning_limit([&] { return plan_buckets(*buckets_, all, found_.plan, request_of); }));
  return check_together(*buckets_, peak_bytes(), budget);
}

Bytes Run::peak_bytes() const {
  return buckets_ ? std::max(peak_of(*buckets_, planned_device(), found_.plan), found_.plan.peak_bytes())
                  : found_.plan.peak_bytes();
}

Status Run::bind_buckets() {
  for (size_t i = 1; i < buckets_->list.size(); ++i) {
    LengthBucket& bucket = buckets_->list[i];
    if (bucket.samples == 0) continue;
    PLIMSOLL_ASSIGN(bucket.in_session, session_->add_plan(*bucket.model, bucket.plan));
  }
  return session_->use(0);
}

Result<FitResult> Run::fit_buckets(const FitOptions& options, FitObserver& observer) {
  const BucketWindows::Settings settings{buckets_->window, options.steps_per_epoch, options_.data.shuffle,
                                         options_.seed};
  BucketWindows windows(*session_, *buckets_, *data_.source, settings);
  Validate validate;
  if (data_.validation)
    validate = [&] { return plimsoll::engine::evaluate(*session_, *data_.validation, options.stop); };
  OptimizerState reached = optimizer_;
  PLIMSOLL_ASSIGN(FitResult result, plimsoll::engine::fit(*session_, windows, validate, reached, options, observer));
  PLIMSOLL_TRY(session_->use(0));
  optimizer_ = result.optimizer;
  return result;
}

}  // namespace plimsoll::engine
