// The gradient of an embedding is mostly zeros, as large as the embedding itself, and often read only by its update. If
// the device can update from dy and the ids (sgd_rows, adam_rows), gradient and update become one node and the gradient
// is never stored. The node sums in the embedding's dtype, so a cast to that dtype before or after the gradient is
// dropped.
#include "lower/fold.h"
#include "lower/lower.h"

namespace plimsoll::engine {
namespace {

class RowFolder {
 public:
  explicit RowFolder(const Graph& graph) : graph_(graph), only_readers_(graph) {}

  // Returns the row-wise update that replaces this node, in terms of the old graph's values.
  std::optional<Node> folded(const Node& update) const {
    if (update.op != "sgd" && update.op != "adam") return std::nullopt;
    const Node* gradient = only_readers_.maker(update, update.inputs[1]);
    if (widens(gradient)) gradient = only_readers_.maker(*gradient, gradient->inputs[0]);
    if (gradient == nullptr || gradient->op != "embedding_grad") return std::nullopt;
    ValueId dy = gradient->inputs[0];
    if (const Node* cast = only_readers_.maker(*gradient, dy); widens(cast)) dy = cast->inputs[0];
    Node node = update;
    node.op += "_rows";
    node.inputs[1] = dy;
    node.inputs.insert(node.inputs.begin() + 2, gradient->inputs[1]);
    return node;
  }

 private:
  bool widens(const Node* node) const {
    return node != nullptr && node->op == "cast" && is_half(graph_.type(node->inputs[0]).dtype) &&
           graph_.type(node->outputs[0]).dtype == DType::kFloat32;
  }

  const Graph& graph_;
  OnlyReaders only_readers_;
};

}  // namespace

Graph fold_row_gradients(const Graph& graph, const Device& device) {
  const RowFolder folder(graph);
  return fold_where_offered(graph, device, [&](const Node& node) { return folder.folded(node); });
}

}  // namespace plimsoll::engine
