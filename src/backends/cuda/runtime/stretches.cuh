// Output pixels of a convolution as blocks take them: a line of an image, or a stretch of it where it is long.
#pragma once

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

}  // namespace plimsoll::cuda
