// What passes share that make one node of several where a device has it.
#pragma once

#include "device/device.h"
#include "graph/rewrite.h"

namespace plimsoll::engine {

// Each node as `proposed` has it, where it proposes one and the device offers a kernel for that (see replace_nodes).
template <typename F>
Graph fold_where_offered(const Graph& graph, const Device& device, F proposed) {
  return replace_nodes(graph, [&](const Node& node) {
    std::optional<Node> other = proposed(node);
    if (other && !device.offer(graph, *other)) other.reset();
    return other;
  });
}

}  // namespace plimsoll::engine
