#include "search/recompute_levels.h"

#include <algorithm>
#include <cmath>

#include "lower/lower.h"
#include "search/compile.h"

namespace plimsoll::engine {
namespace {

// Returns the share of the live set under recompute_cheap that this level leaves.
double share_left(int64_t level) {
  return std::pow(0.87, static_cast<double>(level - 1));
}

// Folds epilogues before any node is cloned, because a clone copies the epilogue of its node.
Graph with_epilogues(Graph graph, const Device& device) {
  return device.has_epilogues() ? fold_epilogues(graph) : graph;
}

}  // namespace

Rewritten apply_recompute(Graph graph, const Device& device, int64_t level) {
  if (level == 1) return recompute_cheap(graph);
  return recompute_costly(with_epilogues(std::move(graph), device), device, share_left(level));
}

Result<RecomputeLevels> RecomputeLevels::create(const SearchRequest& request, const LeverSettings& others,
                                                bool costly) {
  PLIMSOLL_ASSIGN(Graph graph, joint_graph(request, others));
  RecomputeLevels levels;
  levels.device_ = request.device;
  levels.cheap_ = recompute_cheap(graph).count > 0;
  if (costly) levels.ready_ = with_epilogues(std::move(graph), *request.device);
  return levels;
}

std::optional<int64_t> RecomputeLevels::after(int64_t level, bool costly) {
  if (level == 0 && cheap_) return 1;
  if (!costly || !ready_) return std::nullopt;
  if (!reach_) reach_.emplace(std::move(*ready_), *device_);
  for (int64_t next = std::max<int64_t>(level, 1) + 1; next <= std::ssize(kRecomputeValues); ++next)
    if (reach_->reaches(share_left(next))) return next;
  return std::nullopt;
}

}  // namespace plimsoll::engine
