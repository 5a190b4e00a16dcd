#include <algorithm>
#include <functional>

#include "graph/rewrite.h"
#include "levers/lever.h"
#include "ops/op.h"

namespace plimsoll {
namespace {

// Longer chains of clones cost more than they free: a residual chain would otherwise be walked back to the input.
constexpr int kLongestChain = 4;

bool is_backward(const Graph& graph, const Node& node) {
  return graph.value(node.outputs[0]).category == Category::kGradients;
}

// Decides, in program order, which forward values are made again and which are kept.
class Chooser {
 public:
  explicit Chooser(const Graph& graph)
      : graph_(graph), kept_(graph.values.size(), false), again_(graph.values.size(), false) {
    const auto readers = readers_of(graph);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const bool forward =
          graph.values[v].producer != kNone && !is_backward(graph, graph.node(graph.values[v].producer));
      for (NodeId reader : readers[v])
        if ((forward || graph.values[v].producer == kNone) && is_backward(graph, graph.node(reader))) kept_[v] = true;
    }
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (kept_[v] && graph.values[v].producer != kNone) consider(static_cast<ValueId>(v));
  }

  bool again(ValueId id) const { return again_[static_cast<size_t>(id)]; }
  // Whether the backward pass can read it without making it again.
  bool available(ValueId id) const {
    return graph_.value(id).producer == kNone || (kept_[static_cast<size_t>(id)] && !again(id));
  }
  int64_t count() const { return std::count(again_.begin(), again_.end(), true); }

 private:
  // Nodes to clone for `id` and the bytes that would have to be kept for it and are not yet; false if it cannot be
  // cloned.
  bool chain(ValueId id, int& nodes, Bytes& newly_kept) const {
    const Value& value = graph_.value(id);
    if (value.producer == kNone && !value.persistent && !kept_[static_cast<size_t>(id)]) newly_kept += value.bytes();
    return available(id) || chain_of_producer(id, nodes, newly_kept);
  }

  bool chain_of_producer(ValueId id, int& nodes, Bytes& newly_kept) const {
    const Node& node = graph_.node(graph_.value(id).producer);
    if (op_def(node.op).recompute != Recompute::kCheap || ++nodes > kLongestChain) return false;
    for (ValueId input : node.inputs)
      if (!chain(input, nodes, newly_kept)) return false;
    return true;
  }

  void consider(ValueId id) {
    int nodes = 0;
    Bytes newly_kept = 0;
    if (chain_of_producer(id, nodes, newly_kept) && newly_kept < graph_.value(id).bytes())
      again_[static_cast<size_t>(id)] = true;
  }

  const Graph& graph_;
  std::vector<bool> kept_, again_;
};

}  // namespace

Rewritten recompute_cheap(const Graph& graph) {
  const Chooser chooser(graph);
  Rewrite rewrite(graph);
  // The value to read in the backward pass for an old one: itself, or a clone made here and now.
  const std::function<ValueId(ValueId)> fresh = [&](ValueId id) -> ValueId {
    if (chooser.available(id)) return rewrite.to(id);
    const NodeId producer = graph.value(id).producer;
    const Node& node = graph.node(producer);
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(fresh(input));
    const auto outputs = rewrite.clone_node(producer, inputs);
    const auto index = std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin();
    return outputs[static_cast<size_t>(index)];
  };

  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool any = is_backward(graph, node) &&
                     std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return chooser.again(id); });
    if (!any) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(chooser.again(id) ? fresh(id) : rewrite.to(id));
    const auto outputs = rewrite.clone_node(static_cast<NodeId>(n), inputs);
    for (size_t i = 0; i < outputs.size(); ++i) rewrite.bind(node.outputs[i], outputs[i]);
  }
  return {rewrite.finish(), chooser.count()};
}

}  // namespace plimsoll
