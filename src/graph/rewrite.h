// Building one graph from another: what every pass does.
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace plimsoll::engine {

class Rewrite {
 public:
  // Starts with the name and all inputs of `from`, which must outlive this.
  explicit Rewrite(const Graph& from);

  const Graph& from() const { return from_; }
  const Graph& graph() const { return to_; }

  ValueId to(ValueId old) const;          // the new value that stands for an old one
  void bind(ValueId old, ValueId value);  // from now on `value` stands for `old`
  ValueId add_value(Value value);         // its name is made unique
  void add_node(Node node);               // of new ids; its outputs must have been added
  void copy_node(NodeId old);             // the node as it was, reading what now stands for its inputs
  // A copy of an old node whose outputs stand for nothing: its outputs' new ids.
  std::vector<ValueId> clone_node(NodeId old, const std::vector<ValueId>& inputs);

  Graph finish();  // ends the rewriting: outputs and updates mapped; nodes that nobody reads dropped

 private:
  std::string unique_name(std::string wish);

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
  std::map<std::string, int> names_;
};

// For each value, the one node it is there for; kNone where several read it, or where it is an output or an update,
// which must exist as themselves.
std::vector<NodeId> only_readers_of(const Graph& graph);

// Nodes and the readers that alone read what they make.
class OnlyReaders {
 public:
  explicit OnlyReaders(const Graph& graph) : graph_(graph), only_reader_(only_readers_of(graph)) {}

  // The node that makes `value` for `reader`, a node of the graph, and for nobody else; null otherwise.
  const Node* maker(const Node& reader, ValueId value) const;

 private:
  const Graph& graph_;
  std::vector<NodeId> only_reader_;
};

// Each node as `replacement` has it, in values of the old graph and with the same outputs, or as it was. Nodes that
// nobody reads any more are dropped.
Graph replace_nodes(const Graph& graph, const std::function<std::optional<Node>(const Node&)>& replacement);

// Without nodes and values that lead to no output or update. Graph inputs stay, read or not.
Graph without_dead_nodes(Graph graph);

}  // namespace plimsoll::engine
