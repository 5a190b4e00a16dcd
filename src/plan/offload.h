// The lever of a device with memory of its own: values that wait long between two readers wait in the host's memory.
//
// It stands in plan/ because it works on a lowered graph whose nodes are ordered, and on the live set that
// plan/storage.h finds for that order; levers/ comes before lower/.
#pragma once

#include <optional>

#include "device/device.h"
#include "lower/lower.h"

namespace plimsoll::engine {

inline constexpr std::string_view kOffload = "offload";
// Percent of the largest live set of training that wait in the host's memory.
inline constexpr int64_t kOffloadPercents[] = {5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90};

// A phase whose nodes are in the order they run.
struct OrderedPhase {
  const LoweredGraph& graph;
  Bytes live = 0;       // its largest live set
  Bytes most_live = 0;  // of all phases of training
};

struct Offloaded {
  LoweredGraph graph;
  int64_t values = 0;  // that wait in the host's memory; 0: the phase stays as it is, and `graph` is empty
};

// Leaves at most 100 - `percent` percent of `most_live` alive on the device. None where that cannot be reached.
std::optional<Offloaded> offload_percent(const OrderedPhase& phase, const Device& device, int64_t percent);

// The bytes that must leave at least once.
double bytes_to_offload(Bytes live, Bytes most_live, int64_t percent);

// The same nodes in the same order, with copies between them so that no more than `cap` bytes of transient values are
// alive at once. Copies run beside the nodes; where a node must wait for one, the copy's second node says for how long.
// Bitwise: a value comes back as it went. None where values that are always in use alone take more than `cap`.
std::optional<Offloaded> offload(const LoweredGraph& ordered, const Device& device, Bytes cap);

}  // namespace plimsoll::engine
