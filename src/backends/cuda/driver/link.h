#pragma once

#include "backends/cuda/card.h"

namespace plimsoll::engine::cuda {

// Bytes per second in the slower direction, for a card whose profile does not tell.
Result<double> remembered_link(const Card& card, int ordinal);

}  // namespace plimsoll::engine::cuda
