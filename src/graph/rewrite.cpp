#include "graph/rewrite.h"

#include <fmt/format.h>

#include <cassert>

namespace plimsoll::engine {

Rewrite::Rewrite(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.name = from.name;
  to_.values.reserve(from.values.size());
  to_.nodes.reserve(from.nodes.size());
  for (ValueId id : from.inputs) {
    bind(id, add_value(from.value(id)));
    to_.inputs.push_back(to(id));
  }
}

ValueId Rewrite::to(ValueId old) const {
  const ValueId id = map_[static_cast<size_t>(old)];
  assert(id != kNone);
  return id;
}

void Rewrite::bind(ValueId old, ValueId value) {
  map_[static_cast<size_t>(old)] = value;
}

std::string Rewrite::unique_name(std::string wish) {
  if (names_.emplace(wish, 0).second) return wish;
  for (;;) {
    std::string name = fmt::format("{}.{}", wish, ++names_[wish]);
    if (names_.emplace(name, 0).second) return name;
  }
}

ValueId Rewrite::add_value(Value value) {
  const auto id = static_cast<ValueId>(to_.values.size());
  value.name = unique_name(std::move(value.name));
  value.producer = kNone;
  to_.values.push_back(std::move(value));
  return id;
}

void Rewrite::add_node(Node node) {
  for (ValueId id : node.outputs) to_.value(id).producer = static_cast<NodeId>(to_.nodes.size());
  to_.nodes.push_back(std::move(node));
}

std::vector<ValueId> Rewrite::clone_node(NodeId old, const std::vector<ValueId>& inputs) {
  Node node = from_.node(old);
  node.inputs = inputs;
  for (ValueId& id : node.outputs) id = add_value(from_.value(id));
  std::vector<ValueId> outputs = node.outputs;
  add_node(std::move(node));
  return outputs;
}

void Rewrite::copy_node(NodeId old) {
  const Node& node = from_.node(old);
  std::vector<ValueId> inputs;
  for (ValueId id : node.inputs) inputs.push_back(to(id));
  const std::vector<ValueId> outputs = clone_node(old, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) bind(node.outputs[i], outputs[i]);
}

Graph Rewrite::finish() {
  for (ValueId id : from_.outputs) to_.outputs.push_back(to(id));
  for (const Update& update : from_.updates) to_.updates.push_back({to(update.persistent), to(update.value)});
  names_.clear();
  return without_dead_nodes(std::move(to_));
}

std::vector<NodeId> only_readers_of(const Graph& graph) {
  std::vector<NodeId> only;
  for (const auto& readers : readers_of(graph)) only.push_back(readers.size() == 1 ? readers[0] : kNone);
  for (ValueId id : graph.outputs) only[static_cast<size_t>(id)] = kNone;
  for (const Update& update : graph.updates) only[static_cast<size_t>(update.value)] = kNone;
  return only;
}

const Node* OnlyReaders::maker(const Node& reader, ValueId value) const {
  const NodeId only = only_reader_[static_cast<size_t>(value)], producer = graph_.value(value).producer;
  return producer != kNone && only != kNone && &graph_.node(only) == &reader ? &graph_.node(producer) : nullptr;
}

Graph replace_nodes(const Graph& graph, const std::function<std::optional<Node>(const Node&)>& replacement) {
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    std::optional<Node> node = replacement(graph.nodes[n]);
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
  return rewrite.finish();
}

// Works in place: for a large model, a second graph would be most of the planner's memory.
Graph without_dead_nodes(Graph graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (ValueId id : graph.inputs) needed[static_cast<size_t>(id)] = true;
  for (ValueId id : graph.outputs) needed[static_cast<size_t>(id)] = true;
  for (const Update& update : graph.updates) needed[static_cast<size_t>(update.value)] = true;
  std::vector<bool> alive(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (ValueId id : node.outputs) alive[n] = alive[n] || needed[static_cast<size_t>(id)];
    if (!alive[n]) continue;
    for (ValueId id : node.inputs) needed[static_cast<size_t>(id)] = true;
    for (ValueId id : node.outputs) needed[static_cast<size_t>(id)] = true;
  }

  std::vector<ValueId> map(graph.values.size(), kNone);
  size_t values = 0, nodes = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!needed[v]) continue;
    map[v] = static_cast<ValueId>(values);
    if (values != v) graph.values[values] = std::move(graph.values[v]);
    graph.values[values++].producer = kNone;
  }
  graph.values.resize(values);
  graph.values.shrink_to_fit();
  const auto remap = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = map[static_cast<size_t>(id)];
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!alive[n]) continue;
    if (nodes != n) graph.nodes[nodes] = std::move(graph.nodes[n]);
    Node& node = graph.nodes[nodes];
    remap(node.inputs);
    remap(node.outputs);
    for (ValueId id : node.outputs) graph.value(id).producer = static_cast<NodeId>(nodes);
    ++nodes;
  }
  graph.nodes.resize(nodes);
  graph.nodes.shrink_to_fit();
  remap(graph.inputs);
  remap(graph.outputs);
  for (Update& update : graph.updates)
    update = {map[static_cast<size_t>(update.persistent)], map[static_cast<size_t>(update.value)]};
  return graph;
}

}  // namespace plimsoll::engine
