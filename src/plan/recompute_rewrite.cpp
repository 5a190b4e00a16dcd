#include "plan/recompute_rewrite.h"

#include <algorithm>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/fused_body.h"
#include "ops/predicates.h"
#include "plan/views.h"

namespace plimsoll::engine {
namespace {

class Rewriter {
 public:
  Rewriter(const LoweredGraph& from, const RecomputeUnits& units, const RecomputeChoice& choice, const Device& device)
      : from_(from), graph_(from.graph), device_(device), rewrite_(from.graph), views_(from.graph) {
    std::vector<std::vector<const RecomputeUnit*>> again(graph_.nodes.size()), inside(graph_.nodes.size());
    for (size_t u = 0; u < units.units.size(); ++u) {
      const RecomputeUnit& unit = units.units[u];
      for (const int at : choice.recomputed_at(u)) {
        const bool fused = unit.fused && std::binary_search(unit.readers.begin(), unit.readers.end(), at);
        (fused ? inside : again)[static_cast<size_t>(at)].push_back(&unit);
      }
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      // Units are in the order of their producers, so a source is computed before its reader.
      for (const RecomputeUnit* unit : again[n]) recompute(unit->value, static_cast<NodeId>(n));
      emit(static_cast<NodeId>(n), inside[n]);
    }
  }

  LoweredGraph finish() { return without_unread_outputs(rewrite_.finish(), kernels_, device_); }

 private:
  // Adds a node of the old graph with the values that take the places of its inputs. `original`: the old node whose
  // kernel it runs, or kNone.
  std::vector<ValueId> add(Node node, NodeId original) {
    for (ValueId& id : node.inputs) id = rewrite_.to(id);
    for (ValueId& id : node.outputs) id = rewrite_.add_value(graph_.value(id));
    const std::vector<ValueId> outputs = node.outputs;
    if (original != kNone)
      kernels_[rewrite_.graph().value(outputs[0]).name] = {outputs.size(),
                                                           &from_.kernels[static_cast<size_t>(original)]};
    rewrite_.add_node(std::move(node));
    return outputs;
  }

  void recompute(ValueId value, NodeId before) {
    const NodeId producer = graph_.value(value).producer;
    const Node node = remaker_of(graph_, value);
    const bool whole = node.outputs.size() == graph_.node(producer).outputs.size();
    const auto made = add(node, whole ? producer : kNone);
    const auto index = std::find(node.outputs.begin(), node.outputs.end(), value) - node.outputs.begin();
    rewrite_.bind(value, made[static_cast<size_t>(index)]);
    for (const NodeId view : views_.read_from(value, before)) {
      const Node& shown = graph_.node(view);
      rewrite_.bind(shown.outputs[0], add(shown, view)[0]);
    }
  }

  void emit(NodeId n, const std::vector<const RecomputeUnit*>& inside) {
    Node node = graph_.node(n);
    NodeId original = n;
    // Values with a later producer first: what they are computed from may be another value of the list.
    for (auto it = inside.rbegin(); it != inside.rend(); ++it) {
      const RecomputeUnit* unit = *it;
      auto fused = fused_into_reader(graph_, remaker_of(graph_, unit->value), unit->value, node, device_);
      if (!fused || !device_.offer(graph_, *fused)) {  // together with other values it may be too much for one kernel
        recompute(unit->value, n);
        continue;
      }
      node = std::move(*fused);
      original = kNone;
    }
    const std::vector<ValueId> olds = node.outputs;
    const auto made = add(std::move(node), original);
    for (size_t i = 0; i < made.size(); ++i) rewrite_.bind(olds[i], made[i]);
  }

  const LoweredGraph& from_;
  const Graph& graph_;
  const Device& device_;
  Rewrite rewrite_;
  ViewsOf views_;
  KnownKernels kernels_;
};

}  // namespace

LoweredGraph with_recomputed(const LoweredGraph& ordered, const RecomputeUnits& units, const RecomputeChoice& choice,
                             const Device& device) {
  return Rewriter(ordered, units, choice, device).finish();
}

}  // namespace plimsoll::engine
