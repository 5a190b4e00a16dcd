// The recompute lever (gradient checkpointing), as levels. Level 1 recomputes cheap nodes (recompute_cheap). From level
// 2 on, costly nodes are recomputed too; each level has a smaller live set and takes more time (recompute_costly). The
// levels are here and not in levers/, because a clone copies the epilogue of its node, which lower/ folds.
#pragma once

#include <optional>

#include "levers/recompute.h"
#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kRecompute = "recompute";
inline constexpr int64_t kRecomputeValues[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

Rewritten apply_recompute(Graph graph, const Device& device, int64_t level);

// Returns the levels that are worth a plan together with the other settings, from 0 up. The live set of a level is
// computed only on demand, because the first few levels are mostly enough.
class RecomputeLevels {
 public:
  // Levels above 1 only if `costly`.
  static Result<RecomputeLevels> create(const SearchRequest& request, const LeverSettings& others, bool costly);
  static RecomputeLevels only_zero() { return {}; }

  std::optional<int64_t> after(int64_t level,
                               bool costly = true);  // the next level; must be called for each level in turn

 private:
  const Device* device_ = nullptr;
  bool cheap_ = false;
  std::optional<Graph> ready_;  // the graph for costly levels, until the first one is requested
  std::optional<ReachOfRecompute> reach_;
};

}  // namespace plimsoll::engine
