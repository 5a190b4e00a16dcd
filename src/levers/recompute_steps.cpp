#include "levers/recompute_steps.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "ops/recurrent.h"

namespace plimsoll::engine {
namespace {

Recurrent loop_of(const Graph& graph, const Node& node) {
  return read_recurrent(node.attrs, graph.type(node.inputs[0]).shape, graph.type(node.inputs[2]).shape);
}

// With n numbers per checkpoint and m per step of a segment, n * T / k + m * k is smallest at k = sqrt(n * T / m).
int64_t steps_per_segment(const Recurrent& r) {
  const double checkpoint = r.has_carry() ? 2 : 1;
  const double gradients = r.cell == CellKind::kSimple ? 1 : 4;
  const double step =
      gradients + static_cast<double>(r.saved()) + 1 + checkpoint + static_cast<double>(r.d) / static_cast<double>(r.u);
  const auto steps = static_cast<int64_t>(std::lround(std::sqrt(checkpoint * static_cast<double>(r.t) / step)));
  return std::max<int64_t>(1, steps);
}

class StepRecompute {
 public:
  explicit StepRecompute(const Graph& graph) : graph_(graph), rewrite_(graph), loop_(graph.nodes.size(), kNone) {}

  // Returns none if there is no loop to rewrite.
  std::optional<Rewritten> run() {
    find_loops();
    if (std::all_of(loop_.begin(), loop_.end(), [](NodeId loop) { return loop == kNone; })) return std::nullopt;
    int64_t count = 0;
    states_.assign(graph_.nodes.size(), kNone);
    carries_ = states_;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const bool loop = loop_[n] == static_cast<NodeId>(n);
      if (loop)
        add_loop(static_cast<NodeId>(n));
      else if (loop_[n] != kNone)
        add_gradient(static_cast<NodeId>(n));
      else
        rewrite_.copy_node(static_cast<NodeId>(n));
      count += loop ? 1 : 0;
    }
    return Rewritten{rewrite_.finish(), count};
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }

  // Finds the loops whose records only their own gradient reads, and that gradient: loop_ names the loop of both.
  void find_loops() {
    std::vector<int64_t> readers(graph_.values.size(), 0);
    for (const Node& node : graph_.nodes)
      for (const ValueId id : node.inputs) ++readers[at(id)];
    const std::vector<bool> handed_out = handed_out_values(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& gradient = graph_.nodes[n];
      if (gradient.op != "recurrent_grad") continue;
      const Recurrent r = loop_of(graph_, gradient);
      const NodeId made = graph_.value(gradient.inputs[at(r.in_states)]).producer;
      if (made == kNone || graph_.node(made).op != "recurrent" || r.saves != CellSaves::kEverything) continue;
      const Node& loop = graph_.node(made);
      const Recurrent own = loop_of(graph_, loop);
      bool alone = own.saves == CellSaves::kEverything && loop_[at(made)] == kNone && r.t > 2 * steps_per_segment(r);
      alone = alone && std::equal(loop.inputs.begin(), loop.inputs.end(), gradient.inputs.begin());
      for (const Slot record : {own.out_states, own.out_gates, own.out_carries})
        if (record >= 0)
          alone = alone && readers[at(loop.outputs[at(record)])] == 1 && !handed_out[at(loop.outputs[at(record)])];
      if (alone) loop_[n] = loop_[at(made)] = made;
    }
  }

  Attrs with_checkpoints(const Node& node) const {
    Attrs attrs = node.attrs;
    attrs.set("every", steps_per_segment(loop_of(graph_, node)));
    return attrs;
  }

  void add_loop(NodeId n) {
    const Node& old = graph_.node(n);
    Node node = old;
    node.attrs = with_checkpoints(old);
    for (ValueId& id : node.inputs) id = rewrite_.to(id);
    node.outputs.clear();
    const Recurrent before = loop_of(graph_, old);
    const Recurrent after =
        read_recurrent(node.attrs, graph_.type(old.inputs[0]).shape, graph_.type(old.inputs[2]).shape);
    const size_t results = before.has_carry() ? 3 : 2;
    for (size_t i = 0; i < results; ++i) {
      node.outputs.push_back(rewrite_.add_value(graph_.value(old.outputs[i])));
      rewrite_.bind(old.outputs[i], node.outputs.back());
    }
    const auto checkpoints = [&](const char* name) {
      Value value = graph_.value(old.outputs[1]);
      value.name += name;
      value.type.shape = Shape{after.n, after.checkpoints(), after.u};
      node.outputs.push_back(rewrite_.add_value(std::move(value)));
      return node.outputs.back();
    };
    states_[at(n)] = checkpoints("/checkpoints");
    if (after.has_carry()) carries_[at(n)] = checkpoints("/carry_checkpoints");
    rewrite_.add_node(std::move(node));
  }

  void add_gradient(NodeId n) {
    const Node& old = graph_.node(n);
    const Recurrent r = loop_of(graph_, old);
    Node node = old;
    node.attrs = with_checkpoints(old);
    node.inputs.clear();
    for (size_t i = 0; i < old.inputs.size(); ++i) {
      const auto slot = static_cast<Slot>(i);
      if (slot == r.in_gates) continue;
      const NodeId loop = loop_[at(n)];
      node.inputs.push_back(slot == r.in_states    ? states_[at(loop)]
                            : slot == r.in_carries ? carries_[at(loop)]
                                                   : rewrite_.to(old.inputs[i]));
    }
    node.outputs.clear();
    for (const ValueId id : old.outputs) {
      node.outputs.push_back(rewrite_.add_value(graph_.value(id)));
      rewrite_.bind(id, node.outputs.back());
    }
    rewrite_.add_node(std::move(node));
  }

  const Graph& graph_;
  Rewrite rewrite_;
  std::vector<NodeId> loop_;               // per node: the loop that it is, or is the gradient of
  std::vector<ValueId> states_, carries_;  // per loop: the checkpoints, in the new graph
};

}  // namespace

Rewritten recompute_steps(Graph joint) {
  if (auto made = StepRecompute(joint).run()) return std::move(*made);
  return {std::move(joint), 0};
}

}  // namespace plimsoll::engine
