// Checks whether a card has enough free memory. The errors tell how much is free and which processes hold the rest.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// For use before this process has a context on the card: whether the driver and the libraries fit into the free memory.
Status check_room_for_context(const Context& context);
// Whether this process can allocate `bytes` in total, including the memory it has allocated already.
Status check_room(const Context& context, Bytes bytes);

// Builds "NVIDIA H200 does not have 12.0 GiB free <purpose>".
Error no_room(const Context& context, Bytes wanted, const std::string& purpose);

}  // namespace plimsoll::engine::cuda
