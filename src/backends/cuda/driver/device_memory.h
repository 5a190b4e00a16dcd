// Memory of a GPU: the arena, the feed that copies batches into it, and the readback that copies sums out of it.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

Result<std::unique_ptr<Memory>> reserve_device_memory(Context& context, Bytes bytes);
// Pinned host memory, so that copies to and from the card run concurrently with other work.
Result<std::unique_ptr<Memory>> reserve_pinned_memory(Context& context, Bytes bytes);
Result<std::unique_ptr<Feed>> open_device_feed(Context& context, Bytes bytes);
Result<std::unique_ptr<Readback>> open_device_readback(Context& context, const Memory& memory, Bytes offset,
                                                       Bytes bytes);

// Scalar uploads: enqueues up to kMostPokes small writes as one kernel that carries the bytes in its parameters.
inline constexpr int kMostPokes = 64;
void launch_pokes(std::byte* base, std::span<const Poke> pokes, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
