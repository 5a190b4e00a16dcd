#include "plan/views.h"

#include <algorithm>

#include "ops/predicates.h"

namespace plimsoll::engine {

ViewsOf::ViewsOf(const Graph& graph)
    : graph_(graph), views_(graph.values.size()), last_reader_(graph.values.size(), kNone) {
  const std::vector<ValueId> viewed = viewed_values(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (const ValueId id : node.inputs) last_reader_[static_cast<size_t>(id)] = static_cast<NodeId>(n);
    if (is_view(node))
      views_[static_cast<size_t>(viewed[static_cast<size_t>(node.outputs[0])])].push_back(static_cast<NodeId>(n));
  }
}

std::vector<NodeId> ViewsOf::read_from(ValueId value, NodeId before) const {
  std::vector<NodeId> found;
  const auto& views = views_[static_cast<size_t>(value)];
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    if (*view >= before) continue;
    const ValueId shown = graph_.node(*view).outputs[0];
    const bool by_view =
        std::any_of(found.begin(), found.end(), [&](NodeId later) { return graph_.node(later).inputs[0] == shown; });
    if (by_view || last_reader_[static_cast<size_t>(shown)] >= before) found.push_back(*view);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace plimsoll::engine
