// The cheapest choice of what is live at one node. The values that are not are recomputed behind it, from values that
// are live at the node or are recomputed themselves.
//
// For a given price of a byte, the cheapest choice is a minimal cut (min_cut.h). The price is the Lagrange multiplier
// of the cap: each price gives a lower bound on the seconds, and where the bound is largest the choice that keeps no
// more than the cap is often the best one. It is not always possible elsewhere: other nodes have caps too.
#pragma once

#include <vector>

#include "plan/recompute_choice.h"

namespace plimsoll::engine {

struct CutAtNode {
  double least_seconds = 0;   // lower bound on the seconds that recompute adds; values that save time count as 0
  std::vector<size_t> units;  // those that may be live at the node or not
  std::vector<bool> dropped;  // which of them are not; empty if no choice is known to reach the cap
};

// With `present`, other values are live at the node as this choice has them. Without, as if nothing were dropped.
CutAtNode cut_at(const RecomputeUnits& units, int node, Bytes cap, const RecomputeChoice* present = nullptr);

// Returns the nodes at which cut_at() may give the largest bounds, and no two that are close to each other: those with
// the largest of the given bounds.
std::vector<int> nodes_to_cut(const std::vector<double>& bounds, size_t most);

// Whether the value need not be live while `node` runs, if its unit is dropped.
bool frees_at(const RecomputeUnit& unit, int node);

// Lower bounds, per node, on the seconds of freeing what is too much there, where each value costs its own price alone.
// Empty if some node cannot reach the cap.
std::vector<double> least_seconds_per_node(const RecomputeUnits& units, Bytes cap);

}  // namespace plimsoll::engine
