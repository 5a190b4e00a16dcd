// Fuses element-wise nodes that read each other into one node that reads and writes memory once.
//
// A group runs at the position of its last member. A node may join the groups it reads only if no node outside reads
// from them before that position; then moving them down changes nothing. A reduction ends a chain: no node of the same
// group may read its result, because the result is known only when the whole kernel is done.
#include <algorithm>
#include <numeric>
#include <set>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/lower.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

class Fuser {
 public:
  Fuser(const Graph& graph, const Device& device)
      : graph_(graph), readers_(readers_of(graph)), group_of_(graph.nodes.size(), kNone) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (fusible(graph.nodes[n], device)) place(static_cast<NodeId>(n));
  }

  Graph run() {
    Rewrite rewrite(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const int group = group_of_[n];
      if (group == kNone || groups_[static_cast<size_t>(group)].size() == 1)
        rewrite.copy_node(static_cast<NodeId>(n));
      else if (groups_[static_cast<size_t>(group)].back() == static_cast<NodeId>(n))
        emit(rewrite, groups_[static_cast<size_t>(group)]);
    }
    return rewrite.finish();
  }

 private:
  static bool is_reduction(const Node& node) { return op_def(node.op).kind == OpKind::kReduction; }

  const Shape& domain(NodeId id) const {
    const Node& node = graph_.node(id);
    return graph_.type(is_reduction(node) ? node.inputs[0] : node.outputs[0]).shape;
  }

  bool fusible(const Node& node, const Device& device) const {
    const OpKind kind = op_def(node.op).kind;
    const bool broadcast = node.op == "broadcast";
    if (kind != OpKind::kElementwise && kind != OpKind::kReduction && !broadcast) return false;
    if (graph_.type(node.inputs.empty() || broadcast ? node.outputs[0] : node.inputs[0]).shape.rank() == 0)
      return false;
    return device.fuses(graph_, node);
  }

  // Returns whether the reductions among the members have results of different sizes: they sum different sets of rows.
  bool sums_differently(const std::vector<NodeId>& members) const {
    int64_t size = 0;
    for (NodeId member : members) {
      if (!is_reduction(graph_.node(member))) continue;
      const int64_t here = graph_.type(graph_.node(member).outputs[0]).shape.elements();
      if (size != 0 && here != size) return true;
      size = here;
    }
    return false;
  }

  // Returns whether a node reads the result of a reduction that is a member too. It may read it through others.
  bool reads_own_sum(const std::vector<NodeId>& members) const {
    for (NodeId member : members)
      for (ValueId in : graph_.node(member).inputs) {
        const NodeId producer = graph_.value(in).producer;
        if (producer != kNone && is_reduction(graph_.node(producer)) &&
            std::find(members.begin(), members.end(), producer) != members.end())
          return true;
      }
    return false;
  }

  // Returns whether no node outside `members` reads their outputs before `position`.
  bool may_move_to(const std::vector<NodeId>& members, NodeId position) const {
    for (NodeId member : members)
      for (ValueId out : graph_.node(member).outputs)
        for (NodeId reader : readers_[static_cast<size_t>(out)])
          if (reader < position && std::find(members.begin(), members.end(), reader) == members.end()) return false;
    return true;
  }

  bool joins(NodeId id, int group, std::vector<NodeId>& members) const {
    const auto& others = groups_[static_cast<size_t>(group)];
    if (members.size() + others.size() > kMostFusedMembers || domain(others[0]) != domain(id)) return false;
    std::vector<NodeId> all = members;
    all.insert(all.end(), others.begin(), others.end());
    if (reads_own_sum(all) || sums_differently(all) || !may_move_to(all, id)) return false;
    members = std::move(all);
    return true;
  }

  void place(NodeId id) {
    std::vector<NodeId> members = {id};
    std::set<int> joined;
    for (ValueId in : graph_.node(id).inputs) {
      const NodeId producer = graph_.value(in).producer;
      const int group = producer == kNone ? kNone : group_of_[static_cast<size_t>(producer)];
      if (group != kNone && joined.count(group) == 0 && joins(id, group, members)) joined.insert(group);
    }
    std::sort(members.begin(), members.end());
    const int group = joined.empty() ? static_cast<int>(groups_.size()) : *joined.begin();
    if (joined.empty()) groups_.emplace_back();
    for (int other : joined) groups_[static_cast<size_t>(other)].clear();
    groups_[static_cast<size_t>(group)] = members;
    for (NodeId member : members) group_of_[static_cast<size_t>(member)] = group;
  }

  bool read_outside(ValueId id, const std::vector<NodeId>& members) const {
    for (NodeId reader : readers_[static_cast<size_t>(id)])
      if (std::find(members.begin(), members.end(), reader) == members.end()) return true;
    return is_handed_out(graph_, id);
  }

  void emit(Rewrite& rewrite, const std::vector<NodeId>& members) const {
    Graph body;
    body.name = "fused";
    std::map<ValueId, ValueId> inside;
    const Node& last = graph_.node(members.back());
    Node fused{"fused", {}, {}, {}, last.layer, last.stage, nullptr};
    const auto add = [&](ValueId old) {
      const auto id = static_cast<ValueId>(body.values.size());
      body.values.push_back(graph_.value(old));
      body.values.back().persistent = false;
      body.values.back().producer = kNone;
      inside[old] = id;
      return id;
    };
    for (NodeId member : members) {
      Node node = graph_.node(member);
      for (ValueId& in : node.inputs) {
        if (inside.count(in) == 0) {
          body.inputs.push_back(add(in));
          fused.inputs.push_back(rewrite.to(in));
        }
        in = inside[in];
      }
      for (ValueId& out : node.outputs) {
        const ValueId old = out;
        out = add(old);
        body.value(out).producer = static_cast<NodeId>(body.nodes.size());
        if (!read_outside(old, members)) continue;
        body.outputs.push_back(out);
        const ValueId result = rewrite.add_value(graph_.value(old));
        rewrite.bind(old, result);
        fused.outputs.push_back(result);
      }
      body.nodes.push_back(std::move(node));
    }
    fused.body = std::make_shared<const Graph>(std::move(body));
    rewrite.add_node(std::move(fused));
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<int> group_of_;
  std::vector<std::vector<NodeId>> groups_;
};

}  // namespace

// A fused node reads a repeated tensor from the smaller one. So each element-wise reader gets a broadcast of its own,
// and the large tensor is not kept for a reader that comes later.
static Graph split_broadcasts(const Graph& graph, const Device& device) {
  const auto reads_it = [&](const Node& reader, const Shape& shape) {
    const OpKind kind = op_def(reader.op).kind;
    if (kind != OpKind::kElementwise && kind != OpKind::kReduction) return false;
    const ValueId domain = kind == OpKind::kReduction ? reader.inputs[0] : reader.outputs[0];
    return graph.type(domain).shape == shape && device.fuses(graph, reader);
  };
  const auto readers = readers_of(graph);
  const auto is_split = [&](const Node& node) {
    return node.op == "broadcast" && readers[static_cast<size_t>(node.outputs[0])].size() > 1 &&
           device.fuses(graph, node);
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_split)) return graph;
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      const NodeId producer = graph.value(in).producer;
      const auto same = std::find(node.inputs.begin(), node.inputs.begin() + static_cast<int64_t>(i), in);
      if (same != node.inputs.begin() + static_cast<int64_t>(i)) {
        inputs.push_back(inputs[static_cast<size_t>(same - node.inputs.begin())]);
      } else if (producer != kNone && is_split(graph.node(producer)) && reads_it(node, graph.type(in).shape)) {
        inputs.push_back(rewrite.clone_node(producer, {rewrite.to(graph.node(producer).inputs[0])})[0]);
      } else {
        inputs.push_back(rewrite.to(in));
      }
    }
    const auto outputs = rewrite.clone_node(static_cast<NodeId>(n), inputs);
    for (size_t o = 0; o < outputs.size(); ++o) rewrite.bind(node.outputs[o], outputs[o]);
  }
  return rewrite.finish();
}

Graph fuse_elementwise(const Graph& graph, const Device& device) {
  return Fuser(split_broadcasts(graph, device), device).run();
}

}  // namespace plimsoll::engine
