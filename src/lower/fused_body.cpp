#include "lower/fused_body.h"

#include <algorithm>

#include "lower/lower.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

bool is_reduction(const Node& node) {
  return op_def(node.op).kind == OpKind::kReduction;
}

// The shape over which a member's loop runs.
const Shape& domain(const Graph& graph, const Node& member) {
  return graph.type(is_reduction(member) ? member.inputs[0] : member.outputs[0]).shape;
}

// Adds the members of a node to the body of a new fused node.
class Joiner {
 public:
  explicit Joiner(const Graph& graph) : graph_(graph) { body_.name = "fused"; }

  // Adds the members of `node`, whose inputs and outputs are values of the graph.
  void add(const Node& node) {
    if (!node.body) return add_members(graph_, {node}, node.inputs, node.inputs, node.outputs, node.outputs);
    add_members(*node.body, node.body->nodes, node.body->inputs, node.inputs, node.body->outputs, node.outputs);
  }

  // Returns the node, with the outputs of `last`.
  Node finish(const Node& last) {
    Node node = last;
    node.op = "fused";
    node.attrs = {};
    node.inputs = inputs_;
    for (const ValueId id : last.outputs) body_.outputs.push_back(known_.at(id));
    node.body = std::make_shared<const Graph>(std::move(body_));
    return node;
  }

  size_t members() const { return body_.nodes.size(); }

 private:
  ValueId add_value(const Value& value) {
    body_.values.push_back(value);
    Value& added = body_.values.back();
    added.name = std::to_string(body_.values.size()) + "." + value.name;  // names of two bodies may be equal
    added.persistent = false;
    added.producer = kNone;
    return static_cast<ValueId>(body_.values.size() - 1);
  }

  void add_members(const Graph& inner, const std::vector<Node>& members, const std::vector<ValueId>& inner_inputs,
                   const std::vector<ValueId>& inputs, const std::vector<ValueId>& inner_outputs,
                   const std::vector<ValueId>& outputs) {
    std::map<ValueId, ValueId> inside;  // value of `inner` -> value of the new body
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (known_.count(inputs[i]) == 0) {
        known_[inputs[i]] = add_value(inner.value(inner_inputs[i]));
        body_.inputs.push_back(known_[inputs[i]]);
        inputs_.push_back(inputs[i]);
      }
      inside[inner_inputs[i]] = known_[inputs[i]];
    }
    for (Node member : members) {
      for (ValueId& in : member.inputs) in = inside.at(in);
      for (ValueId& out : member.outputs) {
        const ValueId made = add_value(inner.value(out));
        inside[out] = made;
        out = made;
        body_.value(made).producer = static_cast<NodeId>(body_.nodes.size());
      }
      body_.nodes.push_back(std::move(member));
    }
    for (size_t o = 0; o < outputs.size(); ++o) known_[outputs[o]] = inside.at(inner_outputs[o]);
  }

  const Graph& graph_;
  Graph body_;
  std::vector<ValueId> inputs_;
  std::map<ValueId, ValueId> known_;  // value of the graph -> value of the body
};

// Returns whether the node can be part of a fused node of this device, and the shape of its loop.
const Shape* loop_of(const Graph& graph, const Node& node, const Device& device) {
  if (node.body)
    return node.body->name == kGroupBody || node.body->nodes.empty() ? nullptr
                                                                     : &domain(*node.body, node.body->nodes.front());
  const OpKind kind = op_def(node.op).kind;
  if (kind != OpKind::kElementwise && kind != OpKind::kReduction) return nullptr;
  if (node.inputs.empty() || graph.type(node.inputs[0]).shape.rank() == 0) return nullptr;
  return device.fuses(graph, node) ? &domain(graph, node) : nullptr;
}

bool has_reduction(const Node& node) {
  return node.body ? std::any_of(node.body->nodes.begin(), node.body->nodes.end(), is_reduction) : is_reduction(node);
}

}  // namespace

Node with_outputs(const Node& node, const std::vector<bool>& wanted) {
  if (!node.body || std::find(wanted.begin(), wanted.end(), false) == wanted.end()) return node;
  const Graph& from = *node.body;
  std::vector<bool> needed(from.values.size(), false), alive(from.nodes.size(), false);
  for (size_t o = 0; o < wanted.size(); ++o) needed[static_cast<size_t>(from.outputs[o])] = wanted[o];
  for (size_t n = from.nodes.size(); n-- > 0;) {
    for (const ValueId id : from.nodes[n].outputs) alive[n] = alive[n] || needed[static_cast<size_t>(id)];
    if (!alive[n]) continue;
    for (const ValueId id : from.nodes[n].inputs) needed[static_cast<size_t>(id)] = true;
    for (const ValueId id : from.nodes[n].outputs) needed[static_cast<size_t>(id)] = true;
  }
  Node result = node;
  result.inputs.clear();
  result.outputs.clear();
  Graph body;
  body.name = from.name;
  std::vector<ValueId> map(from.values.size(), kNone);
  for (size_t v = 0; v < from.values.size(); ++v) {
    if (!needed[v]) continue;
    map[v] = static_cast<ValueId>(body.values.size());
    body.values.push_back(from.values[v]);
    body.values.back().producer = kNone;
  }
  for (size_t i = 0; i < from.inputs.size(); ++i) {
    const ValueId id = map[static_cast<size_t>(from.inputs[i])];
    if (id == kNone) continue;
    body.inputs.push_back(id);
    result.inputs.push_back(node.inputs[i]);
  }
  for (size_t n = 0; n < from.nodes.size(); ++n) {
    if (!alive[n]) continue;
    Node member = from.nodes[n];
    for (ValueId& id : member.inputs) id = map[static_cast<size_t>(id)];
    for (ValueId& id : member.outputs) {
      id = map[static_cast<size_t>(id)];
      body.value(id).producer = static_cast<NodeId>(body.nodes.size());
    }
    body.nodes.push_back(std::move(member));
  }
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (!wanted[o]) continue;
    body.outputs.push_back(map[static_cast<size_t>(from.outputs[o])]);
    result.outputs.push_back(node.outputs[o]);
  }
  result.body = std::make_shared<const Graph>(std::move(body));
  return result;
}

std::optional<Node> fused_into_reader(const Graph& graph, const Node& maker, ValueId value, const Node& reader,
                                      const Device& device) {
  const Shape* made = loop_of(graph, maker, device);
  const Shape* read = loop_of(graph, reader, device);
  if (made == nullptr || read == nullptr || *made != *read || has_reduction(maker)) return std::nullopt;
  if (maker.outputs != std::vector<ValueId>{value}) return std::nullopt;
  Joiner joiner(graph);
  joiner.add(maker);
  joiner.add(reader);
  if (joiner.members() > kMostFusedMembers) return std::nullopt;
  return joiner.finish(reader);
}

}  // namespace plimsoll::engine
