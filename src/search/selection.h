// Selects among candidates as they are found: the fastest one that fits, or the smallest one as long as none fits.
#pragma once

#include <optional>

#include "search/search.h"

namespace plimsoll::engine {

class Selection {
 public:
  Selection(const SearchRequest& request, SearchResult& result) : request_(request), result_(result) {}

  // Adds a candidate. A candidate that is not selectable counts only for least().
  void consider(Plan plan, bool selectable, double least_seconds = 0);

  // Adds a candidate that counts for nothing but the prices of levers.
  void record(const Plan& plan, double least_seconds = 0);

  // Adds a point of the path that is not packed.
  void outline(PathPoint point) { result_.path.push_back(std::move(point)); }

  bool has(const LeverSettings& settings) const;  // whether a candidate has these settings, prefetch aside
  bool fits(const Plan& plan) const { return request_.budget == 0 || plan.peak_bytes() <= request_.budget; }
  bool found() const { return found_; }  // whether a selectable candidate fits
  // Whether none does, but the smallest candidate fits, which was not selectable.
  bool only_smallest_fits() const { return !found_ && held_ && fits(*held_); }
  // Returns whether a plan that takes at least `seconds` could still be selected.
  // `seconds`: of its kernels.
  bool may_select(double seconds) const {
    if (!found_) return true;
    // If reading runs beside the kernels, a plan whose kernels take longer cannot be better. If it does not, a plan
    // that reads ahead may be.
    const bool waits = held_->step_seconds > std::max(held_->compute_seconds, held_->input_seconds);
    return seconds <= (waits ? held_->step_seconds : held_->compute_seconds);
  }
  Bytes least() const { return least_; }
  const Candidate& chosen() const { return result_.candidates[held_at_]; }
  Plan take() { return std::move(*held_); }

 private:
  const SearchRequest& request_;
  SearchResult& result_;
  bool found_ = false;
  std::optional<Plan> held_;
  size_t held_at_ = 0;  // index of the selected plan among the candidates
  Bytes least_ = 0;
};

}  // namespace plimsoll::engine
