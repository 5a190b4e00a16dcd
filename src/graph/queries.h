// Queries on graphs that several passes share.
#pragma once

#include <algorithm>

#include "graph/graph.h"

namespace plimsoll::engine {

// Returns one flag per value: whether the value is an output of the graph or the new value of an update. Passes must
// keep such a value, even if they change its readers.
inline std::vector<bool> handed_out_values(const Graph& graph) {
  std::vector<bool> handed_out(graph.values.size(), false);
  for (ValueId id : graph.outputs) handed_out[static_cast<size_t>(id)] = true;
  for (const Update& update : graph.updates) handed_out[static_cast<size_t>(update.value)] = true;
  return handed_out;
}

// Same as handed_out_values, for one value.
inline bool is_handed_out(const Graph& graph, ValueId id) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end() ||
         std::any_of(graph.updates.begin(), graph.updates.end(),
                     [&](const Update& update) { return update.value == id; });
}

}  // namespace plimsoll::engine
