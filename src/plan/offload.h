// The offload lever, for a device with its own memory: values with a long wait between two readers spend it in host
// memory.
//
// It is in plan/ because it works on a lowered graph whose nodes are ordered, and on the live set that plan/storage.h
// computes for that order; levers/ comes before lower/.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "lower/lower.h"

namespace plimsoll::engine {

inline constexpr std::string_view kOffload = "offload";
// Percent of the largest live set of training that is offloaded to host memory.
inline constexpr int64_t kOffloadPercents[] = {5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90};

// A phase whose nodes are in execution order.
struct OrderedPhase {
  const LoweredGraph& graph;
  Bytes live = 0;       // its largest live set
  Bytes most_live = 0;  // largest live set of all training phases
};

// A phase that a lever rewrote.
struct RewrittenPhase {
  LoweredGraph graph;
  int64_t values = 0;  // number of values it affected; 0: the phase does not change, and `graph` is empty
};

// Returns the live bytes that a phase keeps if `percent` percent of `most_live` are not kept.
Bytes share_kept(Bytes most_live, int64_t percent);

// Offloads values until at most 100 - `percent` percent of `most_live` is live on the device. Returns none if that
// cannot be reached.
std::optional<RewrittenPhase> offload_percent(const OrderedPhase& phase, const Device& device, int64_t percent);

// Lower bound on the bytes that must be copied to host memory.
double bytes_to_offload(Bytes live, Bytes most_live, int64_t percent);

// Returns, for each cap, a lower bound on the largest live set of the phase that offload() makes for it. The caps must
// not increase. The list ends before the first cap that cannot be reached.
std::vector<Bytes> least_live_offloaded(const LoweredGraph& ordered, const Device& device, std::span<const Bytes> caps);

// Returns the same nodes in the same order, with copies between them so that at most `cap` bytes of transient values
// are live at once. Copies run in parallel with the nodes. If a node must wait for a copy, the copy's second node has
// the seconds of the wait. The results are identical bit for bit, because values come back unchanged. Returns none if
// values that cannot be offloaded already need more than `cap`.
std::optional<RewrittenPhase> offload(const LoweredGraph& ordered, const Device& device, Bytes cap);

}  // namespace plimsoll::engine
