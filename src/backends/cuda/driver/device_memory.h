// Memory of a GPU: the arena, the way batches go into it and sums come out of it.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

Result<std::unique_ptr<Memory>> reserve_device_memory(Context& context, Bytes bytes);
// Of the host: pages that stay where they are, so that copies from and to the card run beside everything else.
Result<std::unique_ptr<Memory>> reserve_pinned_memory(Context& context, Bytes bytes);
Result<std::unique_ptr<Feed>> open_device_feed(Context& context, Bytes bytes);
Result<std::unique_ptr<Readback>> open_device_readback(Context& context, const Memory& memory, Bytes offset,
                                                       Bytes bytes);

// Enqueues up to kMostPokes small writes as one kernel whose parameters carry the bytes.
inline constexpr int kMostPokes = 64;
void launch_pokes(std::byte* base, std::span<const Poke> pokes, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
