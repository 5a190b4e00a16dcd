// The lever that recomputes the steps of loops over time (op `recurrent`): the forward pass keeps the states before
// every k-th step instead of the gates and states of all steps, and the backward pass computes the k steps of a segment
// again before it goes through them. With k near sqrt(T), the memory of a loop grows with sqrt(T).
#pragma once

#include <string_view>

#include "levers/lever.h"

namespace plimsoll::engine {

inline constexpr std::string_view kRecomputeSteps = "recompute-steps";
// 1: the segments for which checkpoints and one segment together are smallest.
inline constexpr int64_t kRecomputeStepsValues[] = {1};

// The count is the number of loops. The gradients of the weights are added up segment by segment, so their order
// changes.
Rewritten recompute_steps(Graph joint);

}  // namespace plimsoll::engine
