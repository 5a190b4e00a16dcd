// The gradient of a table is mostly zeros, as large as the table, and often read by the table's update alone. Where a
// device has that update from dy and the ids (sgd_rows, adam_rows), the pair becomes one node and the gradient is never
// stored. Sums are kept in the table's dtype: a cast to it behind the gradient, or before it, is not made.
#include <optional>

#include "graph/rewrite.h"
#include "lower/lower.h"

namespace plimsoll {
namespace {

class RowFolder {
 public:
  RowFolder(const Graph& graph, const Device& device)
      : graph_(graph), device_(device), only_reader_(only_readers_of(graph)) {}

  // The update from rows that stands for this node, in the values of the old graph.
  std::optional<Node> folded(const Node& update) const {
    if (update.op != "sgd" && update.op != "adam") return std::nullopt;
    const Node* gradient = made_for(update, update.inputs[1]);
    if (widens(gradient)) gradient = made_for(*gradient, gradient->inputs[0]);
    if (gradient == nullptr || gradient->op != "embedding_grad") return std::nullopt;
    ValueId dy = gradient->inputs[0];
    if (const Node* cast = made_for(*gradient, dy); widens(cast)) dy = cast->inputs[0];
    Node node = update;
    node.op += "_rows";
    node.inputs[1] = dy;
    node.inputs.insert(node.inputs.begin() + 2, gradient->inputs[1]);
    return device_.offer(graph_, node) ? std::optional(std::move(node)) : std::nullopt;
  }

 private:
  // The node that makes `value` for `reader` and for nobody else, or null.
  const Node* made_for(const Node& reader, ValueId value) const {
    const NodeId only = only_reader_[static_cast<size_t>(value)], producer = graph_.value(value).producer;
    return producer != kNone && only != kNone && &graph_.node(only) == &reader ? &graph_.node(producer) : nullptr;
  }
  bool widens(const Node* node) const {
    return node != nullptr && node->op == "cast" && is_half(graph_.type(node->inputs[0]).dtype) &&
           graph_.type(node->outputs[0]).dtype == DType::kFloat32;
  }

  const Graph& graph_;
  const Device& device_;
  std::vector<NodeId> only_reader_;
};

}  // namespace

Graph fold_row_gradients(const Graph& graph, const Device& device) {
  const RowFolder folder(graph, device);
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    std::optional<Node> node = folder.folded(graph.nodes[n]);
    if (!node) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    for (ValueId& id : node->inputs) id = rewrite.to(id);
    for (ValueId& id : node->outputs) {
      const ValueId made = rewrite.add_value(graph.value(id));
      rewrite.bind(id, made);
      id = made;
    }
    rewrite.add_node(std::move(*node));
  }
  return rewrite.finish();  // without the gradients nobody reads any more
}

}  // namespace plimsoll
