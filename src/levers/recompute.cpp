#include <algorithm>
#include <functional>
#include <map>

#include "graph/rewrite.h"
#include "levers/recompute.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

// Longer chains of clones cost more than they save: a chain of residual blocks would be recomputed from the input.
constexpr int kLongestChain = 4;

// Decides, in program order, which forward values are recomputed and which are kept.
class CheapChooser {
 public:
  explicit CheapChooser(const Graph& graph) : graph_(graph) {
    choice_.read.assign(graph.values.size(), false);
    choice_.recomputed.assign(graph.values.size(), false);
    choice_.shared.assign(graph.nodes.size(), false);
    const auto readers = readers_of(graph);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const NodeId producer = graph.values[v].producer;
      if (producer != kNone && is_backward(graph.node(producer))) continue;
      choice_.read[v] = std::any_of(readers[v].begin(), readers[v].end(),
                                    [&](NodeId reader) { return is_backward(graph.node(reader)); });
    }
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (choice_.read[v] && graph.values[v].producer != kNone) consider(static_cast<ValueId>(v));
  }

  RecomputeChoice take() { return std::move(choice_); }

 private:
  // Counts the nodes to clone for `id`, and the bytes that must be saved additionally for these clones. Returns false
  // if `id` cannot be recomputed.
  bool chain(ValueId id, int& nodes, Bytes& newly_kept) const {
    const Value& value = graph_.value(id);
    if (value.producer == kNone && !value.persistent && !choice_.read[static_cast<size_t>(id)])
      newly_kept += value.bytes();
    return choice_.available(graph_, id) || chain_of_producer(id, nodes, newly_kept);
  }

  bool chain_of_producer(ValueId id, int& nodes, Bytes& newly_kept) const {
    const Node& node = graph_.node(graph_.value(id).producer);
    if (op_def(node.op).recompute != Recompute::kCheap || ++nodes > kLongestChain) return false;
    for (ValueId input : node.inputs)
      if (!chain(input, nodes, newly_kept)) return false;
    return true;
  }

  void consider(ValueId id) {
    // Copies of weights in another dtype are small, and one grouped node makes them for all weights.
    if (is_copy_of_persistent(graph_, id)) return;
    int nodes = 0;
    Bytes newly_kept = 0;
    if (chain_of_producer(id, nodes, newly_kept) && newly_kept < graph_.value(id).bytes())
      choice_.recomputed[static_cast<size_t>(id)] = true;
  }

  const Graph& graph_;
  RecomputeChoice choice_;
};

// Maps an old value to the value that the backward pass reads: the value itself or a clone, which is added now.
class Cloner {
 public:
  Cloner(const Graph& graph, const RecomputeChoice& choice, Rewrite& rewrite)
      : graph_(graph), choice_(choice), rewrite_(rewrite) {}

  ValueId fresh(ValueId id) {
    if (choice_.available(graph_, id)) return rewrite_.to(id);
    const NodeId producer = graph_.value(id).producer;
    const Node& node = graph_.node(producer);
    const auto index =
        static_cast<size_t>(std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin());
    if (const auto made = made_.find(producer); made != made_.end()) return made->second[index];
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(fresh(input));
    const std::vector<ValueId> outputs = rewrite_.clone_node(producer, inputs);
    if (choice_.shared[static_cast<size_t>(producer)]) made_[producer] = outputs;
    return outputs[index];
  }

 private:
  const Graph& graph_;
  const RecomputeChoice& choice_;
  Rewrite& rewrite_;
  std::map<NodeId, std::vector<ValueId>> made_;  // clones that serve every reader
};

}  // namespace

bool is_backward(const Node& node) {
  return node.stage == Stage::kBackward;
}

RecomputeChoice cheap_choice(const Graph& graph) {
  return CheapChooser(graph).take();
}

Rewritten recompute(const Graph& graph, const RecomputeChoice& choice) {
  Rewrite rewrite(graph);
  Cloner cloner(graph, choice, rewrite);
  const auto recomputed = [&](ValueId id) { return choice.recomputed[static_cast<size_t>(id)]; };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_backward(node) || std::none_of(node.inputs.begin(), node.inputs.end(), recomputed)) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(recomputed(id) ? cloner.fresh(id) : rewrite.to(id));
    const auto outputs = rewrite.clone_node(static_cast<NodeId>(n), inputs);
    for (size_t i = 0; i < outputs.size(); ++i) rewrite.bind(node.outputs[i], outputs[i]);
  }
  return {rewrite.finish(), std::count(choice.recomputed.begin(), choice.recomputed.end(), true)};
}

Rewritten recompute_cheap(const Graph& graph) {
  return recompute(graph, cheap_choice(graph));
}

}  // namespace plimsoll::engine
