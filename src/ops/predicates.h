// Queries on nodes that several passes share and that need the ops. The validator has its own versions on purpose.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "ops/op.h"

namespace plimsoll::engine {

// Returns whether the output has the input's bytes and another shape.
inline bool is_view(const Node& node) {
  return op_def(node.op).kind == OpKind::kView;
}

// Returns whether the kernels of this op can add a bias and apply relu.
inline bool takes_epilogue(std::string_view op) {
  return op == "conv2d" || op == "conv3d" || op == "matmul";
}

// Returns whether the attributes of a relu or relu_grad describe max(x, 0).
inline bool is_plain_relu(const Attrs& attrs) {
  return attrs.real_or("negative_slope", 0) == 0 && attrs.real_or("threshold", 0) == 0 && !attrs.has("max_value");
}

// Which elements of a sample share a decision of `dropout`: element e takes number (e / inner) % size.
struct DropoutNoise {
  int64_t inner, size;
  bool shared;  // by all samples

  DropoutNoise(const Attrs& attrs, int64_t sample_elements)
      : inner(attrs.has("noise_inner") ? attrs.integer("noise_inner") : 1),
        size(attrs.has("noise_size") ? attrs.integer("noise_size") : sample_elements),
        shared(attrs.flag("shared")) {}
};

// Returns the third counter of a random op's draws: the call, and which of the call's draws it is.
inline int64_t random_call(const Attrs& attrs) {
  return attrs.integer("call") | attrs.integer("stream") << 24;
}

// Same as readers_of, but a reader of a view counts as a reader of the viewed value.
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

// Returns, for each value, the value whose bytes it shows: a view, or a view of a view, maps to the viewed value, any
// other value to itself.
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
