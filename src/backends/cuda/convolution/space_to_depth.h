// Space-to-depth: a convolution over few input channels with stride 2 becomes a convolution with stride 1 over four
// times as many channels, because 2 x 2 pixels become the channels of one pixel. This gives cuDNN's engines enough
// channels to work on. The plan depends only on shapes and is shared by offer and binder.
#pragma once

#include "backends/cuda/convolution/geometry.h"

namespace plimsoll::engine::cuda {

struct SpaceToDepthPlan {
  bool possible = false;
  int64_t channels = 0;  // channels of a space-to-depth pixel: (row, column, channel), then zeros up to 16 bytes
  int64_t kh = 0, kw = 0, h = 0, w = 0;
  // Offsets in the workspace.
  Bytes image = 0, weights = 0, library = 0;
  Bytes workspace = 0;
};

inline SpaceToDepthPlan plan_space_to_depth(const Convolution& c) {
  constexpr Bytes kMostImage = 256 * kMiB, kLibrary = 32 * kMiB, kPack = 16;
  SpaceToDepthPlan plan;
  if (c.pass == ConvolutionPass::kInputGrad || c.is_volume() || c.groups != 1 || c.c > 4 || c.sh != 2 || c.sw != 2 ||
      c.dh != 1 || c.dw != 1 || c.kh < 2 || c.kw < 2)
    return plan;
  const int64_t pack = kPack / size_of(c.dtype);
  plan.channels = (4 * c.c + pack - 1) / pack * pack;
  plan.kh = (c.kh + 1) / 2;
  plan.kw = (c.kw + 1) / 2;
  plan.h = c.oh + plan.kh - 1;
  plan.w = c.ow + plan.kw - 1;
  const Bytes element = size_of(c.dtype), image = c.n * plan.h * plan.w * plan.channels * element;
  plan.possible = image <= kMostImage;
  plan.weights = align_up(image, 256);
  plan.library = plan.weights + align_up(c.o * plan.kh * plan.kw * plan.channels * element, 256);
  plan.workspace = plan.library + kLibrary;
  return plan;
}

}  // namespace plimsoll::engine::cuda
