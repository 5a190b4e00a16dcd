// Questions that several passes ask of nodes, and need the ops for. The validator asks its own, on purpose.
#pragma once

#include "graph/graph.h"
#include "ops/op.h"

namespace plimsoll::engine {

// Whether the output is the input's bytes under another shape.
inline bool is_view(const Node& node) {
  return op_def(node.op).kind == OpKind::kView;
}

// Whether the attributes of a relu or relu_grad are those of max(x, 0).
inline bool is_plain_relu(const Attrs& attrs) {
  return attrs.real_or("negative_slope", 0) == 0 && attrs.real_or("threshold", 0) == 0 && !attrs.has("max_value");
}

// readers_of, where reading a view is reading what it views.
inline std::vector<std::vector<NodeId>> readers_through_views(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers = readers_of(graph);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (!is_view(node)) continue;
    const auto& of_view = readers[static_cast<size_t>(node.outputs[0])];
    auto& of_viewed = readers[static_cast<size_t>(node.inputs[0])];
    of_viewed.insert(of_viewed.end(), of_view.begin(), of_view.end());
  }
  return readers;
}

// One per value: what a view, or a view of a view, is a view of; every other value is its own.
inline std::vector<ValueId> viewed_values(const Graph& graph) {
  std::vector<ValueId> viewed(graph.values.size());
  for (size_t v = 0; v < viewed.size(); ++v) {
    const NodeId producer = graph.values[v].producer;
    viewed[v] = producer != kNone && is_view(graph.node(producer))
                    ? viewed[static_cast<size_t>(graph.node(producer).inputs[0])]
                    : static_cast<ValueId>(v);
  }
  return viewed;
}

}  // namespace plimsoll::engine
