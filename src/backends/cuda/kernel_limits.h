// What own kernels take at once: known to the rules, and to the kernels when they are compiled.
#pragma once

namespace plimsoll::engine::cuda {

// A block of the convolutions over few channels.
inline constexpr int kFewChannelOutputs = 32;  // channels
inline constexpr int kFewChannelNumbers = 64;  // under the kernel, a 1 for the bias included
inline constexpr int kFewChannelBlocks =
    6;                                    // that a processor has in hand: most of a block's time is waiting for lines
inline constexpr int kPooledPixels = 64;  // of one line of the pooled image

inline constexpr int kMovesAtOnce = 64;  // values that one reorder moves between layouts

}  // namespace plimsoll::engine::cuda
