// The choices of the recompute lever, as plain numbers: each value of the forward pass that waits between two uses may
// be dropped there and computed again.
//
// The numbers are those of the plan itself: lowered nodes in execution order, their kernels' seconds and workspaces,
// and the storage that plan/storage.h assigns.
#pragma once

#include <unordered_map>

#include "device/device.h"
#include "lower/lower.h"

namespace plimsoll::engine {

// One wait of one value: from the node `after` that uses it to the next node `before` that uses it. Each value also has
// a wait behind its last use, in which it is needed only if a recomputed node reads it.
struct RecomputeUnit {
  static constexpr int kBehind = INT32_MAX;  // `before` of the wait behind the last use

  ValueId value = kNone;
  int after = 0, before = kBehind;
  Bytes bytes = 0;
  bool droppable = false;
  // Whether each reader from `before` on computes the value inside its own kernel, so that it is never stored again.
  bool fused = false;
  bool fusible = false;       // it is computed by an element-wise node, which may become part of another one
  double seconds = 0;         // of computing the value again as a node of its own
  double fused_seconds = 0;   // if fused: by how much the readers take longer
  double spared_seconds = 0;  // the forward pass takes less by this if it need not write the value
  Bytes scratch = 0;          // what the recomputing node needs beside its inputs and the value
  int limit = kBehind;  // the last node before which the value can be recomputed: then a weight it reads is updated
  std::vector<ValueId> sources;  // transient values that recomputing it reads
  std::vector<int> readers;      // if fused: the readers
  int gone_until = 0;            // if fused: the first node behind the wait at which the value's place is in use anyway

  // For the bound: the last node that uses the value before the wait in any case, or kNone. A node whose values are all
  // dropped right behind it runs only before their next readers, so it may use its inputs later than in this order.
  int used_until = 0;

  bool is_behind() const { return before == kBehind; }
  // The least that dropping the value costs; below 0 if it saves time.
  double least_seconds() const {
    if (used_until == kNone) return std::min(0.0, (fused ? fused_seconds : seconds) - seconds);
    return (fused ? fused_seconds : seconds) - spared_seconds;
  }
};

struct RecomputeUnits {
  RecomputeUnits(const LoweredGraph& ordered, const Device& device);

  std::vector<RecomputeUnit> units;           // sorted by the position of the producer, then by `after`
  std::vector<std::pair<int, int>> of_value;  // per value: its units, as a range [first, second)
  std::vector<std::vector<int>> read_by;      // per value: units whose recomputation reads it
  std::vector<Bytes> live;                    // per node: transient bytes if nothing is dropped
  std::vector<Bytes> starts;                  // per node: the part of `live` that begins here, its workspace included
  std::vector<ValueId> root;                  // the viewed value of a view; every other value is its own root
  double seconds = 0;                         // of all nodes

  Bytes peak() const;
  double least_seconds() const;  // lower bound on the seconds of all nodes, whatever is dropped
};

// Returns whether a node of the forward pass may run once more.
bool can_run_again(const Node& node);

// A kernel that is chosen already, by the name of its node's first output; with the number of outputs.
using KnownKernels = std::unordered_map<std::string, std::pair<size_t, const KernelOffer*>>;

// Drops the outputs of fused nodes that nobody reads, and nodes without any output that is read. Asks the device for
// the kernels of all nodes that are not in `known`.
LoweredGraph without_unread_outputs(Graph graph, const KnownKernels& known, const Device& device);

// Returns the node that computes only `value` again: without the other outputs of a fused node.
Node remaker_of(const Graph& graph, ValueId value);

}  // namespace plimsoll::engine
