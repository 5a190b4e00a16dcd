// `plan --memory-viz FILE`: the plan as a memory snapshot of PyTorch, which pytorch.org/memory_viz draws: a band per
// value over the time of a step, before anything has run.
#pragma once

#include <string>

#include "plan/plan.h"

namespace plimsoll::engine {

// Returns a pickle (protocol 2) of {"segments": [...], "device_traces": [[...]]}. A step is its phases in their order;
// times are the predicted ones. A band's stack names its layer, its value and its category.
std::string memory_viz(const Plan& plan);

}  // namespace plimsoll::engine
