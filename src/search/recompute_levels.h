// The lever of recomputing, as levels. Level 1 recomputes what is cheap (recompute_cheap); from 2 on costly nodes too,
// each level leaving less alive for more time (recompute_costly). They are here rather than in levers/ because a clone
// takes the epilogue of its node, which lower/ folds.
#pragma once

#include <optional>

#include "levers/recompute.h"
#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kRecompute = "recompute";
inline constexpr int64_t kRecomputeValues[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

Rewritten apply_recompute(Graph graph, const Device& device, int64_t level);

// The levels worth a plan beside the other settings, from 0 up. How much a level leaves alive is found when it is asked
// for: mostly the first few are enough.
class RecomputeLevels {
 public:
  // Levels above 1 only if `costly`.
  static Result<RecomputeLevels> create(const SearchRequest& request, const LeverSettings& others, bool costly);
  static RecomputeLevels only_zero() { return {}; }

  std::optional<int64_t> after(int64_t level, bool costly = true);  // the next one; to be asked for each in turn

 private:
  const Device* device_ = nullptr;
  bool cheap_ = false;
  std::optional<Graph> ready_;  // for costly levels, until one is asked for
  std::optional<ReachOfRecompute> reach_;
};

}  // namespace plimsoll::engine
