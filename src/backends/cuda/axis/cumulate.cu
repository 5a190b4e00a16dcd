// cumsum and cumprod along the middle axis of [outer, size, inner]. With inner elements, each thread runs down one
// column; without, a block scans a row tile by tile.
#include "backends/cuda/axis/launch.h"
#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <bool kProduct>
__device__ inline float joined(float a, float b) {
  return kProduct ? a * b : a + b;
}

template <typename T, bool kProduct>
__global__ void __launch_bounds__(kThreads) cumulate_columns(Cumulation c, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= c.outer * c.inner) return;
  const int64_t base = item / c.inner * c.size * c.inner + item % c.inner;
  double total = kProduct ? 1 : 0;  // a long column adds many numbers one by one
  for (int64_t k = 0; k < c.size; ++k) {
    const int64_t at = base + (c.reverse ? c.size - 1 - k : k) * c.inner;
    const double value = to_float(x[at]), after = kProduct ? total * value : total + value;
    y[at] = from_float<T>(static_cast<float>(c.exclusive ? total : after));
    total = after;
  }
}

template <typename T, bool kProduct>
__global__ void __launch_bounds__(kThreads) cumulate_rows(Cumulation c, const T* __restrict__ x, T* __restrict__ y) {
  constexpr float kStart = kProduct ? 1 : 0;
  __shared__ float of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * c.size;
  float before_tile = kStart;
  for (int64_t first = 0; first < c.size; first += kThreads) {
    const int64_t k = first + threadIdx.x;
    const int64_t at = base + (c.reverse ? c.size - 1 - k : k);
    float scanned = k < c.size ? to_float(x[at]) : kStart;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const float below = __shfl_up_sync(kAllLanes, scanned, offset);
      if (lane >= offset) scanned = joined<kProduct>(scanned, below);
    }
    const float previous = __shfl_up_sync(kAllLanes, scanned, 1);
    if (lane == kWarp - 1) of_warp[warp] = scanned;
    __syncthreads();
    float before = before_tile, all = before_tile;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before = joined<kProduct>(before, of_warp[w]);
      all = joined<kProduct>(all, of_warp[w]);
    }
    if (k < c.size) {
      const float own = c.exclusive ? (lane == 0 ? kStart : previous) : scanned;
      y[at] = from_float<T>(joined<kProduct>(before, own));
    }
    before_tile = all;
    __syncthreads();  // of_warp is written again
  }
}

template <typename T, bool kProduct>
void cumulate(const Cumulation& c, const T* x, T* y, cudaStream_t stream) {
  if (c.inner == 1)
    cumulate_rows<T, kProduct><<<static_cast<unsigned>(c.outer), kThreads, 0, stream>>>(c, x, y);
  else
    cumulate_columns<T, kProduct><<<blocks_for(c.outer * c.inner, kThreads), kThreads, 0, stream>>>(c, x, y);
  check_launch();
}

}  // namespace

void launch_cumulate(const Cumulation& c, Element element, const void* x, void* y, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(y);
    if (c.product)
      cumulate<T, true>(c, from, to, stream);
    else
      cumulate<T, false>(c, from, to, stream);
  });
}

}  // namespace plimsoll::engine::cuda
