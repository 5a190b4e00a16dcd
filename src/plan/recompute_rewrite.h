#pragma once

#include "plan/recompute_choice.h"

namespace plimsoll::engine {

// Returns the graph in which the dropped values are recomputed as `choice` says.
LoweredGraph with_recomputed(const LoweredGraph& ordered, const RecomputeUnits& units, const RecomputeChoice& choice,
                             const Device& device);

}  // namespace plimsoll::engine
