// Whether a card has room, and the error where it has not: what is free, and who holds the rest.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// Before this process has a context on the card: whether the driver and the libraries find room at all.
Status check_room_for_context(const Context& context);
// Whether this process may hold so much, what it holds already included.
Status check_room(const Context& context, Bytes bytes);

// "NVIDIA H200 has no 12.0 GiB free <purpose>".
Error no_room(const Context& context, Bytes wanted, const std::string& purpose);

}  // namespace plimsoll::engine::cuda
