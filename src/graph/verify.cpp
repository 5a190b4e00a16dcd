#include <fmt/format.h>

#include <unordered_set>

#include "graph/graph.h"

namespace plimsoll::engine {
namespace {

tl::unexpected<Error> broken(const Graph& graph, std::string what) {
  return fail(ErrorCode::kInternal, fmt::format("graph \"{}\": {}", graph.name, what));
}

class StructureCheck {
 public:
  explicit StructureCheck(const Graph& graph) : graph_(graph), written_(graph.values.size(), false) {}

  Status run() {
    PLIMSOLL_TRY(names());
    PLIMSOLL_TRY(inputs());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) PLIMSOLL_TRY(node(static_cast<NodeId>(n)));
    for (size_t v = 0; v < written_.size(); ++v)
      if (!written_[v])
        return broken(graph_, fmt::format("%{} is neither an input nor written by a node", graph_.values[v].name));
    for (ValueId id : graph_.outputs)
      if (!in_range(id)) return broken(graph_, fmt::format("output {} is not one of {} values", id, written_.size()));
    return updates();
  }

 private:
  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.values.size(); }

  Status names() const {
    std::unordered_set<std::string_view> seen;
    for (const Value& v : graph_.values) {
      if (v.name.empty()) return broken(graph_, "a value has no name");
      if (!seen.insert(v.name).second) return broken(graph_, fmt::format("two values are named %{}", v.name));
      if (v.layout.empty() ? v.layout_bytes != 0 : v.layout_bytes < v.type.bytes())
        return broken(graph_, fmt::format("%{} of {} bytes has layout '{}' of {} bytes", v.name, v.type.bytes(),
                                          v.layout, v.layout_bytes));
    }
    return {};
  }

  Status inputs() {
    for (ValueId id : graph_.inputs) {
      if (!in_range(id)) return broken(graph_, fmt::format("input {} is not one of {} values", id, written_.size()));
      const Value& v = graph_.value(id);
      if (v.producer != kNone) return broken(graph_, fmt::format("input %{} has a producer", v.name));
      if (written_[static_cast<size_t>(id)]) return broken(graph_, fmt::format("input %{} is listed twice", v.name));
      written_[static_cast<size_t>(id)] = true;
    }
    return {};
  }

  Status node(NodeId n) {
    const Node& node = graph_.node(n);
    if (node.outputs.empty()) return broken(graph_, fmt::format("node {} ({}) has no output", n, node.op));
    for (ValueId id : node.inputs) {
      if (!in_range(id))
        return broken(graph_, fmt::format("node {} ({}) reads value {}, which does not exist", n, node.op, id));
      if (!written_[static_cast<size_t>(id)])
        return broken(graph_,
                      fmt::format("node {} ({}) reads %{} before it is written", n, node.op, graph_.value(id).name));
    }
    for (ValueId id : node.outputs) {
      if (!in_range(id))
        return broken(graph_, fmt::format("node {} ({}) writes value {}, which does not exist", n, node.op, id));
      const Value& v = graph_.value(id);
      if (written_[static_cast<size_t>(id)])
        return broken(graph_, fmt::format("node {} ({}) writes %{}, which has a writer", n, node.op, v.name));
      if (v.producer != n)
        return broken(graph_, fmt::format("%{} is written by node {} ({}), but its producer is node {}", v.name, n,
                                          node.op, v.producer));
      if (v.persistent) return broken(graph_, fmt::format("%{} is persistent but written by a node", v.name));
      written_[static_cast<size_t>(id)] = true;
    }
    if ((node.op == "fused") != (node.body != nullptr))
      return broken(graph_,
                    fmt::format("node {} ({}): only fused nodes may have a body, and they must have one", n, node.op));
    if (node.body) PLIMSOLL_TRY(verify_structure(*node.body));
    return {};
  }

  Status updates() const {
    std::unordered_set<ValueId> seen;
    for (const Update& u : graph_.updates) {
      if (!in_range(u.persistent) || !in_range(u.value))
        return broken(
            graph_, fmt::format("update of value {} by value {}, one of which does not exist", u.persistent, u.value));
      const Value& to = graph_.value(u.persistent);
      const Value& from = graph_.value(u.value);
      if (!to.persistent) return broken(graph_, fmt::format("update of %{}, which is not persistent", to.name));
      if (!seen.insert(u.persistent).second) return broken(graph_, fmt::format("%{} is updated twice", to.name));
      if (!(to.type == from.type))
        return broken(graph_, fmt::format("update of %{} {} by %{} {}: the types differ", to.name, to_text(to.type),
                                          from.name, to_text(from.type)));
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> written_;
};

}  // namespace

Status verify_structure(const Graph& graph) {
  return StructureCheck(graph).run();
}

}  // namespace plimsoll::engine
