#include <algorithm>

#include "graph/rewrite.h"
#include "lower/lower.h"
#include "ops/predicates.h"

namespace plimsoll::engine {

Graph fold_epilogues(const Graph& graph) {
  const std::vector<NodeId> only_reader = only_readers_of(graph);
  Rewrite rewrite(graph);
  std::vector<bool> absorbed(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (absorbed[n]) continue;
    if (!takes_epilogue(graph.nodes[n].op)) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    Node node = graph.nodes[n];
    for (ValueId& id : node.inputs) id = rewrite.to(id);
    ValueId result = node.outputs[0];
    NodeId next = only_reader[static_cast<size_t>(result)];
    // The bias must be produced before this node.
    if (next != kNone && graph.node(next).op == "bias_add" && node.inputs.size() == 2 &&
        graph.value(graph.node(next).inputs[1]).producer < static_cast<NodeId>(n)) {
      node.inputs.push_back(rewrite.to(graph.node(next).inputs[1]));
      absorbed[static_cast<size_t>(next)] = true;
      result = graph.node(next).outputs[0];
      next = only_reader[static_cast<size_t>(result)];
    }
    if (next != kNone && graph.node(next).op == "relu" && is_plain_relu(graph.node(next).attrs)) {
      node.attrs.set("activation", std::string("relu"));
      absorbed[static_cast<size_t>(next)] = true;
      result = graph.node(next).outputs[0];
    }
    node.outputs = {rewrite.add_value(graph.value(result))};
    rewrite.bind(result, node.outputs[0]);
    rewrite.add_node(std::move(node));
  }
  return rewrite.finish();
}

namespace {

// Returns whether `node` is the gradient of the convolution's bias: the sum of `weight_grad`'s dy over all dimensions
// but the channels.
bool is_bias_gradient(const Graph& graph, const Node& node, const Node& weight_grad) {
  return node.op == "reduce_to" && node.inputs[0] == weight_grad.inputs[1] &&
         graph.type(node.outputs[0]).shape == Shape{graph.type(weight_grad.inputs[1]).shape.back()};
}

}  // namespace

Graph fold_bias_gradients(const Graph& graph) {
  const auto readers = readers_of(graph);
  std::vector<NodeId> bias_gradient(graph.nodes.size(), kNone);  // for each weight gradient
  std::vector<bool> absorbed(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if ((node.op != "conv2d_weight_grad" && node.op != "conv3d_weight_grad") || node.attrs.flag("bias")) continue;
    for (NodeId other : readers[static_cast<size_t>(node.inputs[1])]) {
      if (absorbed[static_cast<size_t>(other)] || !is_bias_gradient(graph, graph.node(other), node)) continue;
      const auto& waiting = readers[static_cast<size_t>(graph.node(other).outputs[0])];
      if (std::any_of(waiting.begin(), waiting.end(), [&](NodeId reader) { return reader < static_cast<NodeId>(n); }))
        continue;
      bias_gradient[n] = other;
      absorbed[static_cast<size_t>(other)] = true;
      break;
    }
  }

  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (absorbed[n]) continue;
    if (bias_gradient[n] == kNone) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    Node node = graph.nodes[n];
    const ValueId bias = graph.node(bias_gradient[n]).outputs[0];
    node.attrs.set("bias", true);
    for (ValueId& id : node.inputs) id = rewrite.to(id);
    const ValueId weight = node.outputs[0];
    node.outputs = {rewrite.add_value(graph.value(weight)), rewrite.add_value(graph.value(bias))};
    rewrite.bind(weight, node.outputs[0]);
    rewrite.bind(bias, node.outputs[1]);
    rewrite.add_node(std::move(node));
  }
  return rewrite.finish();
}

}  // namespace plimsoll::engine
