// Values that wait long between two readers, in the host's memory: the lever of a device with memory of its own.
#pragma once

#include <optional>

#include "device/device.h"
#include "lower/lower.h"

namespace plimsoll {

struct Offloaded {
  LoweredGraph graph;
  int64_t values = 0;  // that wait in the host's memory
};

// The same nodes in the same order, with copies between them so that no more than `cap` bytes of transient values are
// alive at once. Copies run beside the nodes; where a node must wait for one, the copy's second node says for how long.
// Bitwise: a value comes back as it went. None where values that are always in use alone take more than `cap`.
std::optional<Offloaded> offload(const LoweredGraph& ordered, const Device& device, Bytes cap);

}  // namespace plimsoll
