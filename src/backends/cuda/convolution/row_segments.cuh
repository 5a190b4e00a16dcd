// Row segments: the tiles of output pixels that thread blocks work on. A segment is a row of the output image, or, if
// the row is long, up to `pixels` consecutive pixels of it.
#pragma once

#include "backends/cuda/common/async_copy.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"

namespace plimsoll::engine::cuda {

struct Segment {
  int64_t image;
  int line, first;
};

// All segments of all rows, in order.
struct Segments {
  int pixels, per_line, count;

  Segments(const ImplicitGemmShape& s, int most)
      : pixels(most), per_line((s.ow + most - 1) / most), count(s.n * s.oh * per_line) {}
  __device__ Segment at(int i, int oh) const {
    const int line = i / per_line;
    return {line / oh, line % oh, (i - line * per_line) * pixels};
  }
};

// Starts the asynchronous copies of dy for one segment: kOutputs channels per pixel from `first_output` on, with a
// shared-memory row pitch of kRow elements. Pixels from `count` on and channels beyond s.o are filled with zeros.
template <int kPixels, int kOutputs, int kRow, typename T>
__device__ void start_gradients(const ImplicitGemmShape& s, const Segment& at, int count, int first_output, int threads,
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

// Runs over a block's segments with double buffering: start(i, to) starts the copies that segment i needs, use(i, at)
// computes on them while the copies of the next segment are in flight.
template <typename T, typename Start, typename Use>
__device__ void for_each_segment(const Segments& segments, T* here, T* next, Start start, Use use) {
  const auto begin = [&](int i, T* to) {
    if (i < segments.count) start(i, to);
    end_copies();
  };
  begin(static_cast<int>(blockIdx.x), here);
  for (int i = static_cast<int>(blockIdx.x); i < segments.count; i += static_cast<int>(gridDim.x)) {
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
