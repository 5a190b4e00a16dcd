// Which nodes of a training phase run once per piece of the batch, and between which merges.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "ops/split.h"

namespace plimsoll::engine {

// A segment lies between two points where samples meet. What a node of segment i computes from all samples is known
// from segment i + 1 on.
struct SplitAnalysis {
  int64_t samples = 0;
  int segments = 0;
  std::vector<std::optional<SplitForm>> forms;  // per node; none: it runs once, for the whole batch
  std::vector<int> segment;                     // per node that runs per piece
  std::vector<bool> sliced;                     // per value: whether it consists of samples
};

// Returns none if a node cannot be cut, or if the graph reads no batch.
std::optional<SplitAnalysis> analyse_split(const Graph& graph);

}  // namespace plimsoll::engine
