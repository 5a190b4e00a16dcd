// Output pixels of a convolution as blocks take them: a line of an image, or a stretch of it where it is long.
#pragma once

#include "backends/cuda/common/async_copy.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"

namespace plimsoll::engine::cuda {

struct Stretch {
  int64_t image;
  int line, first;
};

// The stretches of all lines, one after the other.
struct Stretches {
  int pixels, per_line, count;

  Stretches(const ImplicitGemmShape& s, int most)
      : pixels(most), per_line((s.ow + most - 1) / most), count(s.n * s.oh * per_line) {}
  __device__ Stretch at(int i, int oh) const {
    const int line = i / per_line;
    return {line / oh, line % oh, (i - line * per_line) * pixels};
  }
};

// Begins the copies of the gradients of a stretch's pixels, of which `count` are there: kOutputs of each from the first
// of a block, a row of kRow each, zeros for what is not there.
template <int kPixels, int kOutputs, int kRow, typename T>
__device__ void start_gradients(const ImplicitGemmShape& s, const Stretch& at, int count, int first_output, int threads,
                                const T* dy, T* to) {
  constexpr int kWide = kPack<T>, kPacks = kOutputs / kWide;
  const int outputs = min(kOutputs, s.o - first_output);
  const T* const from = dy + ((at.image * s.oh + at.line) * s.ow + at.first) * s.o + first_output;
  for (int k = static_cast<int>(threadIdx.x); k < kPixels * kPacks; k += threads) {
    const int pixel = k / kPacks, output = k % kPacks * kWide;
    const bool there = pixel < count && output < outputs;
    copy_pack(to + pixel * kRow + output, there ? from + static_cast<int64_t>(pixel) * s.o + output : dy,
              there ? 16 : 0);
  }
}

// A block's stretches, one after the other: start(i, to) begins the copies of what stretch i needs, use(i, at) works on
// them. They lie in two places in turn, so that the next ones are on their way while a stretch is worked on.
template <typename T, typename Start, typename Use>
__device__ void for_each_stretch(const Stretches& stretches, T* here, T* next, Start start, Use use) {
  const auto begin = [&](int i, T* to) {
    if (i < stretches.count) start(i, to);
    end_copies();
  };
  begin(static_cast<int>(blockIdx.x), here);
  for (int i = static_cast<int>(blockIdx.x); i < stretches.count; i += static_cast<int>(gridDim.x)) {
    begin(i + static_cast<int>(gridDim.x), next);
    wait_for_copies<1>();
    __syncthreads();
    use(i, here);
    __syncthreads();
    T* const used = here;
    here = next;
    next = used;
  }
}

}  // namespace plimsoll::engine::cuda
