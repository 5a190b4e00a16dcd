// One candidate: the program for a micro-batch and a choice of levers, lowered and planned.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "levers/lever.h"
#include "search/search.h"

namespace plimsoll {

// How much is computed again: 0 nothing, 1 what is cheap (recompute_cheap), from 2 on costly nodes too, each level
// leaving less alive for more time.
constexpr int kMostRecompute = 10;

// What of the live set stays on the device under offload: each share is tried, from the largest down.
inline constexpr double kKept[] = {0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1};

// The levels worth a plan for a micro-batch, from 0 up; those above 1 only if `costly`. What they reach is found as
// they are asked for: mostly the first few are enough.
class RecomputeLevels {
 public:
  static Result<RecomputeLevels> create(const SearchRequest& request, int64_t micro, bool costly);
  static RecomputeLevels only_zero() { return {}; }

  std::optional<int> after(int level, bool costly = true);  // the next one; to be asked for each in turn

 private:
  const Device* device_ = nullptr;
  bool cheap_ = false;
  std::optional<Graph> ready_;  // for costly levels, until one is asked for
  std::optional<ReachOfRecompute> reach_;
};

Result<Plan> build_plan(const SearchRequest& request, int64_t micro, int recompute);

// The same under offload, for one share of the live set after the other that stays on the device. `worth_it` is asked
// first, with the least seconds of a step: what the copies alone take. Then `take` gets the plan. Ends where it is not
// worth it, or less cannot be reached.
Status build_plans(const SearchRequest& request, int64_t micro, int recompute, std::span<const double> kept,
                   const std::function<bool(double)>& worth_it, const std::function<void(Plan)>& take);

// A batch of the largest phase on its way in.
Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);
// What data take at least. A device with memory of its own always has a batch staged there, and what the host holds is
// the host's; elsewhere reading ahead can be given up.
Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);

// What the whole batch takes without levers, and how the arena then grows with it: unlevered_*, fixed_bytes and
// bytes_per_sample of the result.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll
