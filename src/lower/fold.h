// Shared by the passes that fold several nodes into one if the device has a kernel for it.
#pragma once

#include "device/device.h"
#include "graph/rewrite.h"

namespace plimsoll::engine {

// Replaces each node by the node that `proposed` returns for it, if the device offers a kernel for that node (see
// replace_nodes).
template <typename F>
Graph fold_where_offered(const Graph& graph, const Device& device, F proposed) {
  return replace_nodes(graph, [&](const Node& node) {
    std::optional<Node> other = proposed(node);
    if (other && !device.offer(graph, *other)) other.reset();
    return other;
  });
}

}  // namespace plimsoll::engine
