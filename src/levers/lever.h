// A lever rewrites the joint graph so that less stays alive, and says what that did and what it means for the training.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "graph/graph.h"

namespace plimsoll {

enum class Effect : uint8_t {
  kBitwise,   // nothing changes
  kRounding,  // another order of additions: like another thread count
  kTraining,  // the training itself changes; never chosen unless the user allowed it
};
std::string_view name_of(Effect effect);

struct LeverUse {
  std::string name;
  int64_t count = 0;      // how many values or pieces it touched
  Bytes saves_bytes = 0;  // of the arena, against the plan without it; filled in by search
  double costs_seconds = 0;
  Effect effect = Effect::kBitwise;
};

struct Rewritten {
  Graph graph;
  int64_t count = 0;
};

// relu_grad(max_pool2d_grad(dp, i), y) = max_pool2d_grad(relu_grad(dp, p), i) where p is the pooled y: the mask of relu
// is taken at the pooled size, and the activation before pooling need not be kept. Bitwise: the value at the maximum is
// p itself.
Rewritten mask_relu_after_pooling(const Graph& graph);

// Values that element-wise nodes and normalisation-apply made are computed again next to each backward reader, from
// what is kept anyway, instead of being kept themselves. Bitwise: the same kernels on the same inputs.
Rewritten recompute_cheap(const Graph& graph);

// Beyond recompute_cheap, whatever costs least time for its bytes is computed again, convolutions and products too,
// until about `share` of the live set under recompute_cheap is left; more where that cannot be reached. Statistics of a
// batch stay: they are small, and moving averages follow them. Bitwise: the same kernels on the same inputs. Epilogues
// must have been folded before: a clone takes the ones of its node.
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

}  // namespace plimsoll
