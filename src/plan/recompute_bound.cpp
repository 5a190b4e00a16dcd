// The bound: at each node, the dropped values must add up to the bytes that are too many there, and each of them costs
// at least its own price. The largest bound of all nodes counts. Where it is large, a second one is computed, which
// also knows what each value is recomputed from (recompute_cut.h).
#include <algorithm>

#include "plan/recompute.h"
#include "plan/recompute_cut.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostCuts = 6;

}  // namespace

std::optional<double> least_recompute_seconds(const RecomputeUnits& all, Bytes cap) {
  double always = 0;  // dropping some values saves time, whatever the cap
  for (const RecomputeUnit& unit : all.units)
    if (unit.droppable && !unit.is_behind()) always += std::min(0.0, unit.least_seconds());
  const std::vector<double> bounds = least_seconds_per_node(all, cap);
  if (bounds.empty()) return all.live.empty() ? std::optional(always) : std::nullopt;
  double bound = *std::max_element(bounds.begin(), bounds.end());
  for (const int node : nodes_to_cut(bounds, kMostCuts)) bound = std::max(bound, cut_at(all, node, cap).least_seconds);
  return bound + always;
}

Bytes least_live_bytes(const RecomputeUnits& units) {
  std::vector<Bytes> change(units.live.size() + 1, 0);  // of the bytes that can be freed, per node
  for (const RecomputeUnit& unit : units.units) {
    if (!unit.droppable || unit.is_behind()) continue;
    const int first = unit.used_until + 1, end = unit.fused ? unit.gone_until : unit.before;
    if (first >= end) continue;
    change[static_cast<size_t>(first)] += unit.bytes;
    change[static_cast<size_t>(end)] -= unit.bytes;
  }
  Bytes freed = 0, most = 0;
  for (size_t n = 0; n < units.live.size(); ++n) {
    freed += change[n];
    most = std::max(most, units.live[n] - freed);
  }
  return most;
}

}  // namespace plimsoll::engine
