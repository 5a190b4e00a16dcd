// Recompute (gradient checkpointing): backward nodes read clones of forward values instead of the values themselves,
// which then need not be saved. The results are identical bit for bit: the same kernels run on the same inputs.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "levers/lever.h"

namespace plimsoll::engine {

// Recomputes the results of element-wise and normalisation-apply nodes next to each backward reader, from values that
// are saved anyway.
Rewritten recompute_cheap(const Graph& graph);

// Goes beyond recompute_cheap: recomputes further values, also results of convolutions and matrix products, those first
// that cost least time for their bytes. Stops when about `share` of the live set under recompute_cheap is left, or
// earlier if no choice reaches that. Batch statistics are never recomputed: they are small, and moving averages depend
// on them. Epilogues must already be folded, because a clone copies the epilogue of its node.
Rewritten recompute_costly(const Graph& graph, const Device& device, double share);

// Called with shares that decrease from call to call. reaches() returns whether recompute_costly has a smaller live set
// at this share than at the last share for which it returned true.
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

// Which forward values the backward pass reads, and which of them it recomputes. `read` and `recomputed` have one flag
// per value, `shared` has one per node.
struct RecomputeChoice {
  std::vector<bool> read;        // forward values and inputs of the graph that backward nodes read
  std::vector<bool> recomputed;  // values of `read` to recompute; all others of `read` are saved
  std::vector<bool> shared;  // nodes with one clone for all readers; others have one clone per reader, fused into it

  // Returns whether the backward pass can read the value without recomputing it.
  bool available(const Graph& graph, ValueId id) const {
    const auto v = static_cast<size_t>(id);
    return graph.values[v].producer == kNone || (read[v] && !recomputed[v]);
  }
};

// The choice of recompute_cheap: recomputes chains of a few cheap nodes that start at values that are saved anyway.
RecomputeChoice cheap_choice(const Graph& graph);

// Rewrites the graph. Each clone is placed before its first reader.
Rewritten recompute(const Graph& graph, const RecomputeChoice& choice);

}  // namespace plimsoll::engine
