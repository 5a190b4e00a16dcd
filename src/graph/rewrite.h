// Building one graph from another, as every pass does.
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace plimsoll::engine {

class Rewrite {
 public:
  // Starts with the name and all inputs of `from`, which must outlive the Rewrite.
  explicit Rewrite(const Graph& from);

  const Graph& from() const { return from_; }
  const Graph& graph() const { return to_; }

  ValueId to(ValueId old) const;          // the new value that replaces `old`
  void bind(ValueId old, ValueId value);  // from now on `value` replaces `old`
  ValueId add_value(Value value);         // makes the name unique
  void add_node(Node node);               // with ids of the new graph; the outputs must have been added
  void copy_node(NodeId old);             // copies the node and maps its inputs to the new graph
  // Copies an old node without binding its outputs. Returns the ids of the new outputs.
  std::vector<ValueId> clone_node(NodeId old, const std::vector<ValueId>& inputs);

  Graph finish();  // maps outputs and updates and drops dead nodes; the Rewrite cannot be used afterwards

 private:
  std::string unique_name(std::string wish);

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
  std::map<std::string, int> names_;
};

// Returns, for each value, the only node that reads it. kNone if several nodes read it or if it is an output or part of
// an update.
std::vector<NodeId> only_readers_of(const Graph& graph);

// Finds producers whose value has a single reader.
class OnlyReaders {
 public:
  explicit OnlyReaders(const Graph& graph) : graph_(graph), only_reader_(only_readers_of(graph)) {}

  // Returns the node that produces `value`, if `reader` (a node of the graph) is its only reader; null otherwise.
  const Node* maker(const Node& reader, ValueId value) const;

 private:
  const Graph& graph_;
  std::vector<NodeId> only_reader_;
};

// Replaces each node by the node that `replacement` returns, which must have the same outputs and use values of the old
// graph. Keeps the node if it returns nullopt. Drops nodes that are no longer read.
Graph replace_nodes(const Graph& graph, const std::function<std::optional<Node>(const Node&)>& replacement);

// Removes nodes and values that do not lead to an output or an update. Graph inputs stay even if they are not read.
Graph without_dead_nodes(Graph graph);

}  // namespace plimsoll::engine
