// Recompute: backward nodes read clones of forward values instead of the values themselves, which then need not be
// saved. Bitwise: the same kernels on the same inputs.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "levers/lever.h"

namespace plimsoll::engine {

// Values that element-wise nodes and normalisation-apply made are recomputed next to each backward reader, from what is
// saved anyway.
Rewritten recompute_cheap(const Graph& graph);

// Beyond recompute_cheap, recomputes what costs least time for its bytes, convolutions and products too, until about
// `share` of the live set under recompute_cheap is left; more where that cannot be reached. Statistics of a batch stay:
// they are small, and moving averages follow them. Epilogues must have been folded before: a clone takes the ones of
// its node.
Rewritten recompute_costly(const Graph& graph, const Device& device, double share);

// For shares that fall from call to call: whether recompute_costly leaves less alive at this one than at the last that
// did.
class ReachOfRecompute {
 public:
  ReachOfRecompute(Graph graph, const Device& device);
  ReachOfRecompute(ReachOfRecompute&&) noexcept;
  ~ReachOfRecompute();
  bool reaches(double share);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool is_backward(const Node& node);

// Which forward values the backward pass reads, and which of them it recomputes. One flag per value, except `shared`:
// one per node.
struct RecomputeChoice {
  std::vector<bool> read;        // forward values and inputs of the graph that backward nodes read
  std::vector<bool> recomputed;  // of these, the ones to be recomputed: everything else that is read is saved
  std::vector<bool> shared;      // nodes whose clone serves all readers; others are cloned per reader, and fuse into it

  // Whether the backward pass can read it without recomputing it.
  bool available(const Graph& graph, ValueId id) const {
    const auto v = static_cast<size_t>(id);
    return graph.values[v].producer == kNone || (read[v] && !recomputed[v]);
  }
};

// The choice of recompute_cheap: chains of a few cheap nodes that end in what is saved anyway.
RecomputeChoice cheap_choice(const Graph& graph);

// The rewrite: clones are placed before the first reader that wants them.
Rewritten recompute(const Graph& graph, const RecomputeChoice& choice);

}  // namespace plimsoll::engine
