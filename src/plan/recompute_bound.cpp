// The bound: at each node, the dropped values must add up to the bytes that are too many there, and each of them costs
// at least its own price. Taking the cheapest bytes first, the last value in part, is the optimum of a fractional
// knapsack: no choice of whole values costs less. The largest bound of all nodes counts.
#include <algorithm>
#include <limits>

#include "plan/recompute.h"
#include "plan/recompute_units.h"

namespace plimsoll::engine {
namespace {

// Whether the value need not be there while `node` runs, if its unit is dropped.
bool frees_at(const RecomputeUnit& unit, int node) {
  return unit.used_until < node && node < (unit.fused ? unit.gone_until : unit.before);
}

}  // namespace

std::optional<double> least_recompute_seconds(const RecomputeUnits& all, Bytes cap) {
  std::vector<const RecomputeUnit*> cheapest_first;
  double always = 0;  // dropping some values saves time, whatever the cap
  for (const RecomputeUnit& unit : all.units) {
    if (!unit.droppable || unit.is_behind()) continue;
    always += std::min(0.0, unit.least_seconds());
    cheapest_first.push_back(&unit);
  }
  const auto price = [](const RecomputeUnit& unit) {
    return std::max(0.0, unit.least_seconds()) / static_cast<double>(unit.bytes);
  };
  std::stable_sort(cheapest_first.begin(), cheapest_first.end(),
                   [&](const RecomputeUnit* a, const RecomputeUnit* b) { return price(*a) < price(*b); });
  double bound = 0;
  for (size_t n = 0; n < all.live.size(); ++n) {
    Bytes too_many = all.live[n] - cap;
    double seconds = 0;
    for (const RecomputeUnit* unit : cheapest_first) {
      if (too_many <= 0) break;
      if (!frees_at(*unit, static_cast<int>(n))) continue;
      seconds += price(*unit) * static_cast<double>(std::min(too_many, unit->bytes));
      too_many -= unit->bytes;
    }
    if (too_many > 0) return std::nullopt;
    bound = std::max(bound, seconds);
  }
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
