#pragma once

#include "backends/cuda/card.h"

namespace plimsoll::engine::cuda {

// Bytes a second, each way, of a card whose profile does not say.
Result<double> remembered_link(const Card& card, int ordinal);

}  // namespace plimsoll::engine::cuda
