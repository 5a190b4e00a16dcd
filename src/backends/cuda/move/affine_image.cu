// affine_image: a thread computes all channels of one pixel of the result.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/move/affine_image_launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

template <typename T, typename U>
__global__ void __launch_bounds__(kThreads) affine_image(AffineImages g, Divider columns, const T* __restrict__ x,
                                                         const U* __restrict__ transforms, T* __restrict__ y) {
  uint32_t column = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = columns.split(column);
  if (row >= static_cast<uint32_t>(g.height)) return;
  const int64_t sample = static_cast<int64_t>(g.height) * g.width * g.channels;
  for (int64_t n = blockIdx.y; n < g.batch; n += gridDim.y) {
    float transform[6];
#pragma unroll
    for (int i = 0; i < 6; ++i) transform[i] = to_float(transforms[n * 6 + i]);
    const auto taps = pixel_taps(transform, column, row, g.height, g.width, g.mode, g.nearest);
    const T* from = x + n * sample;
    T* to = y + n * sample + (static_cast<int64_t>(row) * g.width + column) * g.channels;
    for (int c = 0; c < g.channels; ++c) {
      float sum = 0;
      for (int t = 0; t < taps.count; ++t)
        sum += taps.weight[t] * (taps.pixel[t] < 0 ? g.fill : to_float(from[taps.pixel[t] * g.channels + c]));
      to[c] = from_float<T>(sum);
    }
  }
}

}  // namespace

void launch_affine_image(const AffineImages& g, Element element, Element transform_element, const void* x,
                         const void* transforms, void* y, cudaStream_t stream) {
  const int64_t pixels = static_cast<int64_t>(g.height) * g.width;
  const dim3 grid(blocks_for(pixels, kThreads), static_cast<unsigned>(std::min<int64_t>(g.batch, 65535)));
  with_element(element, [&]<typename T>() {
    with_element(transform_element, [&]<typename U>() {
      affine_image<T, U><<<grid, kThreads, 0, stream>>>(g, Divider(g.width), static_cast<const T*>(x),
                                                        static_cast<const U*>(transforms), static_cast<T*>(y));
    });
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
