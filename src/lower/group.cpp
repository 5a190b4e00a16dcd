// Groups equal nodes over different tensors into one node. On some devices launching a kernel costs more than the work
// on a small tensor. There, the update of all weights becomes one kernel, and so do the copies of all weights in
// another dtype or layout.
//
// A group is a `fused` node whose body holds the nodes of all members side by side, or a `reorder` of many values. It
// is placed at its last member. If a node reads a member before that, or if it would need too much memory there, it is
// placed at its first member.
//
// A group costs memory: the inputs of all its members wait for it, and it makes the outputs of all members at once. So
// a group of passes is closed before these bytes become more than a small share of the phase: the update of a large
// weight stands alone, and its gradient can be freed before the next one is computed. The members of a group have one
// stage, and forward nodes that are recomputed for the backward pass are in no group, because making them earlier would
// undo what recomputing them saves.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/lower.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

bool is_flat(const Graph& graph, const Node& node, const Shape& shape) {
  if (op_def(node.op).kind != OpKind::kElementwise || node.op == "dropout" || node.op.starts_with("random_"))
    return false;
  for (ValueId id : node.outputs)
    if (graph.type(id).shape != shape) return false;
  // A vector input may mean one value per channel. Accept only inputs of the full shape, for which both readings agree.
  for (ValueId id : node.inputs)
    if (graph.type(id).shape.rank() != 0 && graph.type(id).shape != shape) return false;
  return true;
}

// Nodes with the same signature may be in one group. Empty for a node that cannot be grouped. Sizes are not part of it.
std::string signature(const Graph& graph, const Node& node) {
  const Shape& shape = graph.type(node.outputs[0]).shape;
  if (shape.rank() == 0) return "";
  const Graph& inner = node.body ? *node.body : graph;
  const std::vector<Node> single = node.body ? std::vector<Node>() : std::vector<Node>{node};
  const std::vector<Node>& nodes = node.body ? node.body->nodes : single;
  std::string text;
  std::map<ValueId, int> numbers;
  const auto add = [&](ValueId id) {
    const int number = numbers.emplace(id, static_cast<int>(numbers.size())).first->second;
    text += fmt::format(" {}:{}{}", number, name_of(inner.type(id).dtype), inner.type(id).shape.rank() == 0 ? "s" : "");
  };
  const std::vector<ValueId>& inputs = node.body ? node.body->inputs : node.inputs;
  for (ValueId id : inputs) add(id);
  for (const Node& member : nodes) {
    if (!is_flat(inner, member, shape)) return "";
    text += "|" + member.op;
    for (ValueId id : member.inputs) add(id);
    text += ">";
    for (ValueId id : member.outputs) add(id);
    for (const auto& item : member.attrs.items())
      text += std::visit(
          [&](const auto& v) {
            if constexpr (std::is_same_v<std::decay_t<decltype(v)>, AttrList>)
              return fmt::format(" {}=[{}]", item.first, fmt::join(v, ","));
            else
              return fmt::format(" {}={}", item.first, v);
          },
          item.second);
  }
  text += "=>";
  for (ValueId id : node.body ? node.body->outputs : node.outputs) add(id);
  return text;
}

bool is_small(const Value& value) {
  return value.bytes() <= kMiB;
}

// The same for reorders.
std::string move_signature(const Graph& graph, const Node& node) {
  if (node.op != "reorder") return "";
  const Value& from = graph.value(node.inputs[0]);
  return fmt::format("{} '{}' to '{}' {}", name_of(from.type.dtype), from.layout, node.attrs.text("layout"),
                     is_small(from) ? "small" : "large");
}

enum class Gather : uint8_t { kPasses, kMoves };

// Returns the largest live set in program order, without the workspaces, which are not known yet.
Bytes live_bytes(const Graph& graph, const std::vector<std::vector<NodeId>>& readers,
                 const std::vector<bool>& handed_out) {
  std::vector<Bytes> change(graph.nodes.size() + 1, 0);  // at the start of each node; the last one is the end
  Bytes live = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.producer == kNone) live += value.bytes();
    if (value.persistent || handed_out[v]) continue;
    if (value.producer != kNone) change[static_cast<size_t>(value.producer)] += value.bytes();
    const NodeId last = readers[v].empty() ? value.producer : readers[v].back();
    change[static_cast<size_t>(last + 1)] -= value.bytes();
  }
  Bytes most = live;
  for (const Bytes bytes : change) most = std::max(most, live += bytes);
  return most;
}

// The bytes that one group may hold: launching a kernel costs less than moving 32 MiB.
Bytes most_held_bytes(Bytes live) {
  return std::max(32 * kMiB, live / 100);
}

class Grouper {
 public:
  Grouper(const Graph& graph, const Device& device, Gather gather)
      : graph_(graph), gather_(gather), readers_(readers_of(graph)), handed_out_(handed_out_values(graph)) {
    const Bytes most = gather == Gather::kMoves ? INT64_MAX : most_held_bytes(live_bytes(graph, readers_, handed_out_));
    std::map<std::string, size_t> open;  // per signature: the group that still takes members
    bool in_backward = false;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      in_backward = in_backward || node.stage == Stage::kBackward;
      const bool recomputed = in_backward && node.stage == Stage::kForward;
      std::string text = gather == Gather::kMoves ? move_signature(graph, node) : signature(graph, node);
      if (text.empty() || recomputed || !device.groups(graph, node)) continue;
      text += name_of(node.stage);
      const Bytes held = gather == Gather::kMoves ? 0 : held_by(static_cast<NodeId>(n));
      if (held > most) continue;
      const auto found = open.find(text);
      if (found != open.end() && groups_[found->second].held + held <= most &&
          joins(groups_[found->second], static_cast<NodeId>(n), device)) {
        groups_[found->second].held += held;
        continue;
      }
      open[text] = groups_.size();
      groups_.push_back({{static_cast<NodeId>(n)}, held, true, true});
    }
  }

  Graph run() {
    std::map<NodeId, const Group*> at;
    std::vector<bool> member(graph_.nodes.size(), false);
    if (standing_groups().empty()) return graph_;
    for (const Group& group : groups_) {
      at[group.place()] = &group;
      for (NodeId id : group.members) member[static_cast<size_t>(id)] = true;
    }
    Rewrite rewrite(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto found = at.find(static_cast<NodeId>(n));
      if (found != at.end() && gather_ == Gather::kMoves)
        emit_move(rewrite, *found->second);
      else if (found != at.end())
        emit_pass(rewrite, *found->second);
      else if (!member[n])
        rewrite.copy_node(static_cast<NodeId>(n));
    }
    return rewrite.finish();
  }

 private:
  struct Group {
    std::vector<NodeId> members;
    Bytes held;        // held_by() of all members
    bool late, early;  // whether it may be placed at its last member, at its first member

    NodeId place() const { return late ? members.back() : members.front(); }
  };

  // Returns the groups of at least two members, without groups placed at their first member that read the output of a
  // group placed at its last member.
  const std::vector<Group>& standing_groups() {
    const auto drop = [&](auto unwanted) {
      const auto gone = std::remove_if(groups_.begin(), groups_.end(), unwanted);
      const bool any = gone != groups_.end();
      groups_.erase(gone, groups_.end());
      return any;
    };
    drop([](const Group& group) { return group.members.size() < 2; });
    std::map<NodeId, NodeId> places;
    do {
      places.clear();
      for (const Group& group : groups_)
        for (NodeId id : group.members) places[id] = group.place();
    } while (drop([&](const Group& group) { return reads_before(group, places); }));
    return groups_;
  }

  // Returns whether an input of the group is produced after the group's place. `places` gives the place of each grouped
  // node.
  bool reads_before(const Group& group, const std::map<NodeId, NodeId>& places) const {
    for (NodeId id : group.members)
      for (ValueId in : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(in).producer;
        const auto found = places.find(producer);
        if ((found == places.end() ? producer : found->second) >= group.place()) return true;
      }
    return false;
  }

  // The bytes that are live at the group's place because this node is in the group, whatever order the nodes of the
  // graph get later: inputs that nothing else reads later, or outputs that have no place yet.
  Bytes held_by(NodeId id) const {
    const Node& node = graph_.node(id);
    Bytes inputs = 0, outputs = 0;
    for (ValueId in : std::set<ValueId>(node.inputs.begin(), node.inputs.end()))
      if (!graph_.value(in).persistent && !is_read_after(in, id)) inputs += graph_.value(in).bytes();
    // A value that is handed out is mostly an update, whose place is that of a persistent value.
    for (ValueId out : node.outputs)
      if (!handed_out_[static_cast<size_t>(out)]) outputs += graph_.value(out).bytes();
    return std::max(inputs, outputs);
  }

  bool joins(Group& group, NodeId id, const Device& device) const {
    if (group.members.size() >= device.largest_group(graph_, graph_.node(id))) return false;
    bool late = group.late, early = group.early;
    for (NodeId member : group.members)
      for (ValueId out : graph_.node(member).outputs)
        for (NodeId reader : readers_[static_cast<size_t>(out)]) late = late && reader > id;
    for (ValueId in : graph_.node(id).inputs) early = early && graph_.value(in).producer < group.members.front();
    if (gather_ == Gather::kMoves) spare_memory(group, id, late, early);
    if (!late && !early) return false;
    group.late = late;
    group.early = early;
    group.members.push_back(id);
    return true;
  }

  // An element-wise node mostly works in-place, but a reorder needs its input and its output. Grouping at the last
  // member keeps all inputs live at once, so it is only for small values. Grouping at the first member makes outputs
  // earlier than needed, so it is only allowed if each of them is still live at the last member.
  void spare_memory(const Group& group, NodeId id, bool& late, bool& early) const {
    late = late && is_small(graph_.value(graph_.node(id).inputs[0]));
    for (NodeId member : group.members) early = early && is_read_after(graph_.node(member).outputs[0], id);
  }

  bool is_read_after(ValueId value, NodeId id) const {
    const auto& readers = readers_[static_cast<size_t>(value)];
    return handed_out_[static_cast<size_t>(value)] ||
           std::any_of(readers.begin(), readers.end(), [&](NodeId r) { return r > id; });
  }

  void emit_move(Rewrite& rewrite, const Group& group) const {
    const Node& first = graph_.node(group.members.front());
    Node move{"reorder", {}, {}, first.attrs, "", first.stage, nullptr};
    for (NodeId id : group.members) {
      const Node& node = graph_.node(id);
      move.inputs.push_back(rewrite.to(node.inputs[0]));
      move.outputs.push_back(rewrite.add_value(graph_.value(node.outputs[0])));
      rewrite.bind(node.outputs[0], move.outputs.back());
    }
    rewrite.add_node(std::move(move));
  }

  void emit_pass(Rewrite& rewrite, const Group& group) const {
    Graph body;
    body.name = kGroupBody;
    Node fused{"fused", {}, {}, {}, "", graph_.node(group.members.front()).stage, nullptr};
    std::map<ValueId, ValueId> shared;  // outer value -> input of the body
    for (NodeId id : group.members) {
      const Node& node = graph_.node(id);
      const Graph& inner = node.body ? *node.body : graph_;
      std::map<ValueId, ValueId> inside;
      const auto add = [&](ValueId old) {
        const auto made = static_cast<ValueId>(body.values.size());
        body.values.push_back(inner.value(old));
        body.values.back().name = fmt::format("{}.{}", id, inner.value(old).name);
        body.values.back().persistent = false;
        body.values.back().producer = kNone;
        return inside[old] = made;
      };
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId old = node.body ? node.body->inputs[i] : node.inputs[i];
        if (const auto known = shared.find(node.inputs[i]); known != shared.end()) {
          inside[old] = known->second;
          continue;
        }
        shared[node.inputs[i]] = add(old);
        body.inputs.push_back(inside[old]);
        fused.inputs.push_back(rewrite.to(node.inputs[i]));
      }
      const auto copy = [&](Node member) {
        for (ValueId& in : member.inputs) in = inside.at(in);
        for (ValueId& out : member.outputs) {
          out = add(out);
          body.value(out).producer = static_cast<NodeId>(body.nodes.size());
        }
        body.nodes.push_back(std::move(member));
      };
      if (node.body)
        for (const Node& member : node.body->nodes) copy(member);
      else
        copy(node);
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        body.outputs.push_back(inside.at(node.body ? node.body->outputs[o] : node.outputs[o]));
        const ValueId result = rewrite.add_value(graph_.value(node.outputs[o]));
        rewrite.bind(node.outputs[o], result);
        fused.outputs.push_back(result);
      }
    }
    fused.body = std::make_shared<const Graph>(std::move(body));
    rewrite.add_node(std::move(fused));
  }

  const Graph& graph_;
  Gather gather_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> handed_out_;
  std::vector<Group> groups_;
};

}  // namespace

Graph group_equal(const Graph& graph, const Device& device) {
  return Grouper(graph, device, Gather::kPasses).run();
}

Graph group_moves(const Graph& graph, const Device& device) {
  return Grouper(graph, device, Gather::kMoves).run();
}

}  // namespace plimsoll::engine
