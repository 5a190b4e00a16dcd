// The plan of a convolution over few input channels by im2col + GEMM: each output pixel becomes a row of the taps *
// channels elements under the kernel. The plan depends only on shapes and is shared by offer and binder.
//
// Rows are padded to 16 bytes. They get an extra column of ones, so the GEMM also adds the bias (forward) or sums dy
// (bias gradient). In half precision the result is then rounded only once, whichever engine the library picks. In
// float32 the bias is added after the GEMM, because tf32 would round it.
#pragma once

#include <algorithm>

#include "backends/cuda/convolution/geometry.h"

namespace plimsoll::engine::cuda {

// The weights are in kWeightLayout. If cuDNN is faster for a problem, the binder uses cuDNN.
inline constexpr const char* kIm2colKernel = "unfold";  // the kernel's name in plans (older name of im2col)

inline bool is_im2col(const Convolution& c) {
  constexpr int64_t kMostChannels = 4, kMostNumbers = 512;
  return c.pass != ConvolutionPass::kInputGrad && !c.is_volume() && c.groups == 1 && c.c <= kMostChannels &&
         c.taps() > 1 && c.taps() * c.c < kMostNumbers;
}

struct Im2colPlan {
  int64_t numbers = 0;  // elements of an im2col row
  bool one = false;     // whether a column of ones follows them
  int64_t width = 0;    // elements of a row including padding
  int64_t images = 0;   // images per batch; the last batch may have fewer
  int64_t parts = 1;    // partial weight gradients in float32: the rows of a batch are split into this many equal runs
  // Offsets in the workspace.
  Bytes rows = 0;
  Bytes weights = 0;  // padded weights, or the parts of the weight gradient
  Bytes library = 0;
  Bytes workspace = 0;
};

// The largest divisor of `number` that is at most `most`.
inline int64_t divisor_up_to(int64_t number, int64_t most) {
  int64_t divisor = std::max<int64_t>(1, std::min(number, most));
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Images per batch: all, or as many as fit in `most` bytes, preferably so that all batches are equal.
inline int64_t images_at_once(int64_t images, Bytes bytes_of_one, Bytes most) {
  const int64_t fit = std::clamp<int64_t>(most / bytes_of_one, 1, images);
  const int64_t even = divisor_up_to(images, fit);
  return even * 2 > fit ? even : fit;
}

inline Im2colPlan plan_im2col(const Convolution& c, bool weight_grad) {
  // A batch of 128 MiB keeps a card busy for many times its launch time (32 MiB, which would fit a large L2 cache, was
  // 10 % slower on an H200). The parts give enough blocks of 64 x 64 results for all multiprocessors.
  constexpr Bytes kMostRows = 128 * kMiB, kLibrary = 4 * kMiB, kPack = 16;
  constexpr int64_t kTile = 64, kBlocks = 512, kLeastRows = 64;
  Im2colPlan plan;
  plan.numbers = c.taps() * c.c;
  const int64_t pack = kPack / size_of(c.dtype);
  plan.one = c.bias && (weight_grad || is_half(c.dtype));
  plan.width = (plan.numbers + (plan.one ? 1 : 0) + pack - 1) / pack * pack;
  const Bytes row = plan.width * size_of(c.dtype);
  plan.images = images_at_once(c.n, c.oh * c.ow * row, kMostRows);
  const int64_t pixels = plan.images * c.oh * c.ow;
  const int64_t tiles = ((c.o + kTile - 1) / kTile) * ((plan.width + kTile - 1) / kTile);
  if (weight_grad)
    plan.parts = divisor_up_to(pixels, std::max<int64_t>(1, std::min(kBlocks / tiles, pixels / kLeastRows)));
  plan.weights = align_up(pixels * row, 256);
  plan.library = plan.weights + align_up(weight_grad ? plan.parts * c.o * plan.width * 4 : c.o * row, 256);
  plan.workspace = plan.library + std::min(kLibrary, plan.weights + kMiB);
  return plan;
}

}  // namespace plimsoll::engine::cuda
