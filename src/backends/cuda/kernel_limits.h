// Limits of our own kernels, shared by the offers and by the compiled kernels.
#pragma once

namespace plimsoll::engine::cuda {

// A thread block of the convolutions over few input channels.
inline constexpr int kFewChannelOutputs = 32;  // output channels
// Elements of an im2col row (taps x channels), including the 1 for the bias.
inline constexpr int kFewChannelNumbers = 64;
inline constexpr int kFewChannelBlocks = 6;  // blocks per multiprocessor: they hide the latency of loading image rows
inline constexpr int kPooledPixels = 64;     // pixels of one row of the pooled image

inline constexpr int kLoopCounterWords = 32;  // between the counters of a loop's barriers: a cache line each
inline constexpr int kMovesAtOnce = 64;       // values that one reorder node converts between layouts

}  // namespace plimsoll::engine::cuda
