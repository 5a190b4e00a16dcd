// Implicit GEMM of a convolution over few input channels fused with the 2 x 2 max pooling after it (conv2d_pooled), and
// its weight gradient fused with the pooling gradient. A block loads the image rows under a segment of pooled pixels
// into shared memory. The plan depends only on shapes and the card, and is shared by offer and binder.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cuda/card.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/kernel_limits.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kPooledKernel = "pooled";  // weights in kWeightLayout

struct PooledPlan {
  bool possible = false;
  int64_t oh = 0, ow = 0;        // size of the pooled image
  int64_t lines = 0, pitch = 0;  // image rows under a segment, and their row pitch in elements
  Bytes shared = 0;
  // Weight gradient: number of float32 partial sums, and the width of their rows: im2col elements, sum of dy, zeros.
  int64_t parts = 0, width = 0;
  Bytes workspace = 0;
};

inline PooledPlan plan_pooled(const Card& card, const Convolution& c, const std::vector<int64_t>& pool,
                              bool weight_grad) {
  constexpr int64_t kMostChannels = 4, kOutputPack = 8, kMost = std::numeric_limits<int>::max();
  constexpr Bytes kMostShared = 48 * kKiB;
  constexpr int64_t kPixels = kPooledPixels, kOutputs = kFewChannelOutputs, kNumbers = kFewChannelNumbers;
  PooledPlan plan;
  const int64_t numbers = c.taps() * c.c + (weight_grad && c.bias ? 1 : 0);
  plan.oh = c.oh / 2, plan.ow = c.ow / 2;
  plan.lines = c.sh + (c.kh - 1) * c.dh + 1;
  plan.pitch = ((2 * kPixels - 1) * c.sw + (c.kw - 1) * c.dw + 1) * c.c;
  // The pitch is half of the banks modulo all banks, so that neighbouring elements, which are in neighbouring image
  // rows, do not conflict.
  constexpr int64_t kBanks = 128;
  const int64_t banks = kBanks / size_of(c.dtype);
  plan.pitch += (3 * banks / 2 - plan.pitch % banks) % banks;
  plan.shared = plan.lines * plan.pitch * size_of(c.dtype);
  if (weight_grad) {
    plan.shared += kPixels * kOutputs * (size_of(c.dtype) + 1);
    plan.shared = std::max<Bytes>(plan.shared, kOutputs * kNumbers * 4);
    const int64_t blocks = (c.o + kOutputs - 1) / kOutputs;
    const int64_t segments = c.n * plan.oh * ((plan.ow + kPixels - 1) / kPixels);
    plan.parts = std::clamp<int64_t>(int64_t{kFewChannelBlocks} * card.multiprocessors / blocks, 1,
                                     std::max<int64_t>(1, segments));
    plan.width = (numbers + 3) / 4 * 4;
    plan.workspace = plan.parts * c.o * plan.width * 4;
  }
  plan.possible = on_matrix_units(card, c) && pool == std::vector<int64_t>{2, 2} && c.groups == 1 &&
                  c.c <= kMostChannels && c.taps() > 1 && c.o % kOutputPack == 0 && numbers <= kNumbers &&
                  plan.shared <= kMostShared && std::max(c.n * c.h * c.w, c.output_pixels()) <= kMost;
  return plan;
}

}  // namespace plimsoll::engine::cuda
