// Questions that several passes ask of a graph.
#pragma once

#include <algorithm>

#include "graph/graph.h"

namespace plimsoll::engine {

// One flag per value: whether the graph hands it out, as an output or as the new value of an update. Such a value must
// exist as itself, whatever a pass does to its readers.
inline std::vector<bool> handed_out_values(const Graph& graph) {
  std::vector<bool> handed_out(graph.values.size(), false);
  for (ValueId id : graph.outputs) handed_out[static_cast<size_t>(id)] = true;
  for (const Update& update : graph.updates) handed_out[static_cast<size_t>(update.value)] = true;
  return handed_out;
}

// The same for one value.
inline bool is_handed_out(const Graph& graph, ValueId id) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end() ||
         std::any_of(graph.updates.begin(), graph.updates.end(),
                     [&](const Update& update) { return update.value == id; });
}

}  // namespace plimsoll::engine
