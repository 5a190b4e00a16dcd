#include "search/selection.h"

#include <algorithm>
#include <tuple>

#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

// Of plans that all wait for their data, the one that computes least is better.
bool is_better(const Plan& a, const Plan& b) {
  return std::tuple(a.step_seconds, a.compute_seconds, a.peak_bytes()) <
         std::tuple(b.step_seconds, b.compute_seconds, b.peak_bytes());
}

// Returns the bytes of the process without prefetch buffers. least_bytes must not depend on the budget, but prefetch
// does.
Bytes least_bytes_of(const SearchRequest& request, const Plan& plan) {
  return std::max(plan.arena_bytes + plan.overhead_bytes + least_data_bytes(request, plan.phases), plan.planning_bytes);
}

}  // namespace

bool Selection::has(const LeverSettings& settings) const {
  return std::any_of(result_.candidates.begin(), result_.candidates.end(), [&](const Candidate& candidate) {
    return candidate.settings.with(kPrefetch, 0) == settings.with(kPrefetch, 0);
  });
}

void Selection::record(const Plan& plan, double least_seconds) {
  result_.candidates.push_back({plan.settings, plan.bytes_in(Space::kHost), plan.arena_bytes, plan.peak_bytes(),
                                plan.compute_seconds, least_seconds});
}

void Selection::consider(Plan plan, bool selectable, double least_seconds) {
  if (request_.host_budget > 0 && plan.bytes_in(Space::kHost) > request_.host_budget) return;
  record(plan, least_seconds);
  const Bytes least = least_bytes_of(request_, plan);
  least_ = least_ == 0 ? least : std::min(least_, least);
  const bool wins = selectable && fits(plan) && (!found_ || is_better(plan, *held_));
  const bool smallest = !found_ && (!held_ || plan.peak_bytes() < held_->peak_bytes());
  if (!wins && !smallest) return;
  found_ = found_ || wins;
  held_ = std::move(plan);
  held_at_ = result_.candidates.size() - 1;
}

}  // namespace plimsoll::engine
