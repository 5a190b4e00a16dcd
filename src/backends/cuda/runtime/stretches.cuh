// Output pixels of a convolution as blocks take them: a line of an image, or a stretch of it where it is long.
#pragma once

#include "backends/cuda/runtime/async_copy.cuh"
#include "backends/cuda/runtime/straight.h"

namespace plimsoll::cuda {

struct Stretch {
  int64_t image;
  int line, first;
};

// The stretches of all lines, one after the other.
struct Stretches {
  int pixels, per_line, count;

  Stretches(const StraightShape& s, int most)
      : pixels(most), per_line((s.ow + most - 1) / most), count(s.n * s.oh * per_line) {}
  __device__ Stretch at(int i, int oh) const {
    const int line = i / per_line;
    return {line / oh, line % oh, (i - line * per_line) * pixels};
  }
};

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

}  // namespace plimsoll::cuda
