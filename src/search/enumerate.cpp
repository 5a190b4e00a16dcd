// Tries micro-batches from the whole batch down; for each, the recompute levels from 0 up; then offload for those that
// do not fit. Recomputing costly nodes and offload save more bytes the more time they take. So such a candidate can be
// selected only if a weaker setting does not fit, and only while it could be faster than the plans that fit. Otherwise
// it is tried only for `find_least`, which must not change the selection.
#include "search/enumerate.h"

#include <algorithm>

#include "levers/split_batch.h"
#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/recompute_levels.h"

namespace plimsoll::engine {
namespace {

// Returns all combinations of settings of the levers that have no loop below. Each combination is tried with everything
// that the loops try.
std::vector<LeverSettings> settings_of_other_levers(const SearchRequest& request) {
  std::vector<LeverSettings> list = {{}};
  for (const Lever& lever : *request.levers) {
    const bool has_a_loop =
        lever.name == kMicroBatch || lever.name == kRecompute || lever.name == kOffload || lever.name == kSplit;
    if (has_a_loop || !lever.is_searched() || lever.stage == LeverStage::kData || request.forbids(lever.name)) continue;
    const size_t before = list.size();
    for (size_t i = 0; i < before; ++i)
      for (const int64_t value : lever.values) list.push_back(list[i].with(lever.name, value));
  }
  return list;
}

// A candidate to try with offload.
struct OffloadTrial {
  LeverSettings settings;
  bool selectable;
  double least_seconds;  // lower bound for a step: the step without copies, or the copies alone, whichever is longer
};

class Enumeration {
 public:
  Enumeration(const SearchRequest& request, const LeverSettings& others, bool find_least, Selection& selection)
      : request_(request),
        others_(others),
        find_least_(find_least),
        selection_(selection),
        micro_batches_(micro_batches(request)) {}

  Status run() {
    for (const int64_t micro : micro_batches_) PLIMSOLL_TRY(try_recompute_levels(micro));
    for (const OffloadTrial& trial : trials_) PLIMSOLL_TRY(try_offload(trial));
    return {};
  }

 private:
  // Costly recompute and offload are tried only for the whole batch and for the smallest micro-batch. In between,
  // smaller micro-batches save the same bytes in less time.
  bool at_an_end(int64_t micro) const { return micro == micro_batches_.front() || micro == micro_batches_.back(); }

  Result<RecomputeLevels> levels_of(int64_t micro) const {
    if (request_.batch == 0 || request_.forbids(kRecompute)) return RecomputeLevels::only_zero();
    return RecomputeLevels::create(request_, cut_into(request_, micro, others_), at_an_end(micro));
  }

  bool can_offload(int64_t micro) const {
    return request_.batch > 0 && request_.device->host_bytes_per_second() > 0 && !request_.forbids(kOffload) &&
           at_an_end(micro);
  }

  // Returns the seconds that the copies of all bytes above the budget take.
  double seconds_away(const Plan& plan) const {
    return static_cast<double>(plan.peak_bytes() - request_.budget) *
           static_cast<double>(plan.batch.accumulation_steps()) / request_.device->host_bytes_per_second();
  }

  // Tries one micro-batch size with the recompute levels from 0 up. The first costly level that fits is enough.
  Status try_recompute_levels(int64_t micro) {
    PLIMSOLL_ASSIGN(RecomputeLevels levels, levels_of(micro));
    bool a_lower_level_fits = false;
    for (std::optional<int64_t> level = 0; level;) {
      const int64_t tried = *level;
      const bool costly = tried > 1;
      const bool selectable = !costly || !a_lower_level_fits;
      const LeverSettings settings = cut_into(request_, micro, others_).with(kRecompute, tried);
      PLIMSOLL_ASSIGN(std::optional<Plan> plan, compile(request_, settings));
      const bool fits = selection_.fits(*plan);
      const bool offload = can_offload(micro) && (!fits || find_least_);
      const OffloadTrial trial{settings, selectable && !fits,
                               offload ? std::max(plan->step_seconds, seconds_away(*plan)) : 0};
      selection_.consider(std::move(*plan), selectable);
      a_lower_level_fits = a_lower_level_fits || fits;
      level = levels.after(tried, !a_lower_level_fits || find_least_);
      // Offload is tried without recompute, with cheap recompute, and with the highest level.
      if (offload && (!costly || !level)) trials_.push_back(trial);
    }
    return {};
  }

  // Offloads more and more, until that takes too long or cannot be reached.
  Status try_offload(const OffloadTrial& trial) {
    bool selectable = trial.selectable && selection_.may_select(trial.least_seconds);
    if (!selectable && !find_least_) return {};
    PLIMSOLL_ASSIGN(Compiler compiler, Compiler::create(request_, trial.settings));
    for (const int64_t& percent : kOffloadPercents) {
      selectable = selectable && selection_.may_select(compiler.seconds_of_copies(percent));
      if (!selectable && !find_least_) break;
      const bool last = &percent == std::end(kOffloadPercents) - 1;
      PLIMSOLL_ASSIGN(auto plan, compiler.compile(trial.settings.with(kOffload, percent), last));
      if (!plan) break;
      selection_.consider(std::move(*plan), selectable);
    }
    return {};
  }

  const SearchRequest& request_;
  const LeverSettings& others_;
  const bool find_least_;
  Selection& selection_;
  const std::vector<int64_t> micro_batches_;
  std::vector<OffloadTrial> trials_;
};

}  // namespace

Status try_candidates(const SearchRequest& request, bool find_least, Selection& selection) {
  for (const LeverSettings& others : settings_of_other_levers(request))
    PLIMSOLL_TRY(Enumeration(request, others, find_least, selection).run());
  return {};
}

}  // namespace plimsoll::engine
