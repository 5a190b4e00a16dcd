// Taking fused nodes apart and putting them together after lowering.
#pragma once

#include <optional>

#include "device/device.h"
#include "graph/graph.h"

namespace plimsoll::engine {

// Returns `node` without the outputs that `wanted` does not have (one flag per output). A fused node also loses the
// members and inputs that only those outputs need. Any other node keeps all of its outputs.
Node with_outputs(const Node& node, const std::vector<bool>& wanted);

// Returns the fused node that computes `value` by `maker` and then does the work of `reader`, so that `value` is not
// stored. `maker` has the one output `value`. Returns none if the device cannot run both as one node. The members are
// the same, so the results are identical bit for bit.
std::optional<Node> fused_into_reader(const Graph& graph, const Node& maker, ValueId value, const Node& reader,
                                      const Device& device);

}  // namespace plimsoll::engine
