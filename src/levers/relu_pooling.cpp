#include "levers/relu_pooling.h"

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "ops/predicates.h"

namespace plimsoll::engine {
namespace {

bool plain_relu_from_output(const Node& node) {
  return node.op == "relu_grad" && node.attrs.has("from") && node.attrs.text("from") == "output" &&
         is_plain_relu(node.attrs);
}

bool is_max_pool_grad(std::string_view op) {
  return op == "max_pool2d_grad" || op == "max_pool3d_grad";
}

// Returns the max pooling whose index feeds `grad` if its input is `y`, else kNone.
NodeId pooling_of(const Graph& graph, const Node& grad, ValueId y) {
  const NodeId pool = graph.value(grad.inputs[1]).producer;
  if (pool == kNone || !graph.node(pool).op.starts_with("max_pool") || graph.node(pool).inputs[0] != y) return kNone;
  return pool;
}

}  // namespace

Rewritten mask_relu_after_pooling(const Graph& graph) {
  const auto readers = readers_of(graph);
  // For each gradient of a max pooling that may be swapped: the relu_grad that follows it.
  std::vector<NodeId> follows(graph.nodes.size(), kNone);
  std::vector<bool> swapped(graph.nodes.size(), false);
  int64_t count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& relu = graph.nodes[n];
    if (!plain_relu_from_output(relu)) continue;
    const NodeId before = graph.value(relu.inputs[0]).producer;
    if (before == kNone || !is_max_pool_grad(graph.node(before).op)) continue;
    if (readers[static_cast<size_t>(relu.inputs[0])].size() != 1 || is_handed_out(graph, relu.inputs[0])) continue;
    if (pooling_of(graph, graph.node(before), relu.inputs[1]) == kNone) continue;
    follows[static_cast<size_t>(before)] = static_cast<NodeId>(n);
    swapped[n] = true;
    ++count;
  }

  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (swapped[n]) continue;
    if (follows[n] == kNone) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    const Node& pool_grad = graph.nodes[n];
    const Node& relu_grad = graph.node(follows[n]);
    const Node& pool = graph.node(pooling_of(graph, pool_grad, relu_grad.inputs[1]));
    Value masked = graph.value(pool_grad.inputs[0]);
    masked.name += "/masked";
    masked.layer = relu_grad.layer;
    const ValueId masked_id = rewrite.add_value(std::move(masked));
    rewrite.add_node({"relu_grad",
                      {rewrite.to(pool_grad.inputs[0]), rewrite.to(pool.outputs[0])},
                      {masked_id},
                      relu_grad.attrs,
                      relu_grad.layer,
                      relu_grad.stage,
                      nullptr});
    const ValueId result = rewrite.add_value(graph.value(relu_grad.outputs[0]));
    rewrite.add_node({pool_grad.op,
                      {masked_id, rewrite.to(pool_grad.inputs[1])},
                      {result},
                      pool_grad.attrs,
                      pool_grad.layer,
                      pool_grad.stage,
                      nullptr});
    rewrite.bind(relu_grad.outputs[0], result);
  }
  return {rewrite.finish(), count};
}

}  // namespace plimsoll::engine
