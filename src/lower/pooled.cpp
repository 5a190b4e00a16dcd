// Folds a convolution into the max pooling that is its only reader, and the gradient of that pooling into the weight
// gradient that is its only reader. Then the image between them is neither written nor kept.
#include <algorithm>

#include "lower/fold.h"
#include "lower/lower.h"

namespace plimsoll::engine {
namespace {

class PoolFolder {
 public:
  explicit PoolFolder(const Graph& graph) : only_readers_(graph) {}

  // Returns the node that replaces this node and its producer, in terms of the old graph's values.
  std::optional<Node> folded(const Node& node) const {
    if (node.op == "max_pool2d")
      if (const Node* conv = made_for(node, node.inputs[0], "conv2d"); conv != nullptr && covers_once(node))
        return joined("conv2d_pooled", *conv, node, conv->inputs, node.outputs);
    if (node.op == "conv2d_weight_grad")
      if (const Node* pool = made_for(node, node.inputs[1], "max_pool2d_grad"); pool != nullptr && covers_once(*pool))
        return joined("conv2d_pooled_weight_grad", node, *pool, {node.inputs[0], pool->inputs[0], pool->inputs[1]},
                      node.outputs);
    return std::nullopt;
  }

 private:
  const Node* made_for(const Node& reader, ValueId value, std::string_view op) const {
    const Node* maker = only_readers_.maker(reader, value);
    return maker != nullptr && maker->op == op ? maker : nullptr;
  }

  // Returns whether the windows do not overlap and there is no padding, as the ops with a `pool` attribute require.
  static bool covers_once(const Node& pool) {
    const auto& pads = pool.attrs.list("pads");
    return pool.attrs.list("pool") == pool.attrs.list("strides") &&
           std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
  }

  static Node joined(std::string op, const Node& conv, const Node& pool, std::vector<ValueId> inputs,
                     std::vector<ValueId> outputs) {
    Node node = conv;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.attrs.set("pool", pool.attrs.list("pool"));
    return node;
  }

  OnlyReaders only_readers_;
};

}  // namespace

Graph fold_pooling(const Graph& graph, const Device& device) {
  const PoolFolder folder(graph);
  return fold_where_offered(graph, device, [&](const Node& node) { return folder.folded(node); });
}

}  // namespace plimsoll::engine
