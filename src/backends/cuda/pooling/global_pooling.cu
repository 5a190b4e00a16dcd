// Global average and max pooling over NHWC images, and their gradients. A block processes some packs of channels of one
// image; its threads split the pixels and combine their results by a tree reduction in shared memory.
#include <cmath>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/pooling/launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

// `lanes` threads along the channels, the others along the pixels; both are powers of two.
struct ChannelLanes {
  int lanes, tiles;
};

ChannelLanes lanes_of(int packs) {
  int lanes = 1;
  while (lanes < packs && lanes < kWarp) lanes *= 2;
  return {lanes, (packs + lanes - 1) / lanes};
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    global_mean(GlobalPool g, int lanes, int tiles, const T* __restrict__ x, T* __restrict__ y) {
  __shared__ float sums[kThreads * N];
  const int lane = static_cast<int>(threadIdx.x) % lanes, slot = static_cast<int>(threadIdx.x) / lanes;
  const int slots = kThreads / lanes;
  const int64_t image = blockIdx.x / tiles;
  const int channel = (static_cast<int>(blockIdx.x % tiles) * lanes + lane) * N;
  float sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = 0;
  if (channel < g.c) {
    const T* from = x + image * g.pixels * g.c + channel;
#pragma unroll 4
    for (int p = slot; p < g.pixels; p += slots) {
      const auto pack = load_pack<N>(from + static_cast<int64_t>(p) * g.c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += to_float(pack.v[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) sums[k * kThreads + threadIdx.x] = sum[k];
  for (int half = slots / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slot < half)
#pragma unroll
      for (int k = 0; k < N; ++k)
        sums[k * kThreads + threadIdx.x] += sums[k * kThreads + static_cast<int>(threadIdx.x) + half * lanes];
  }
  if (slot != 0 || channel >= g.c) return;
  Pack<T, N> mean;
#pragma unroll
  for (int k = 0; k < N; ++k)
    mean.v[k] = from_float<T>(sums[k * kThreads + threadIdx.x] / static_cast<float>(g.pixels));
  store_pack(y + image * g.c + channel, mean);
}

// A NaN is the maximum only if it is the first pixel, as when pixels are compared one after the other.
struct Best {
  float value;
  int at;

  __device__ void join(const Best& other) {
    if (isnan(value)) return;
    if (isnan(other.value) || other.value > value || (other.value == value && other.at < at)) *this = other;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) global_max(GlobalPool g, int lanes, int tiles, const T* __restrict__ x,
                                                       T* __restrict__ y, int32_t* __restrict__ index) {
  __shared__ Best found[kThreads * N];
  const int lane = static_cast<int>(threadIdx.x) % lanes, slot = static_cast<int>(threadIdx.x) / lanes;
  const int slots = kThreads / lanes;
  const int64_t image = blockIdx.x / tiles;
  const int channel = (static_cast<int>(blockIdx.x % tiles) * lanes + lane) * N;
  Best best[N];
#pragma unroll
  for (int k = 0; k < N; ++k) best[k] = {-INFINITY, slot};
  if (channel < g.c) {
    const T* from = x + image * g.pixels * g.c + channel;
#pragma unroll 4
    for (int p = slot; p < g.pixels; p += slots) {
      const auto pack = load_pack<N>(from + static_cast<int64_t>(p) * g.c);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float v = to_float(pack.v[k]);
        if (v > best[k].value || p == 0) best[k] = {v, p};
      }
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) found[k * kThreads + threadIdx.x] = best[k];
  for (int half = slots / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slot < half)
#pragma unroll
      for (int k = 0; k < N; ++k)
        found[k * kThreads + threadIdx.x].join(found[k * kThreads + static_cast<int>(threadIdx.x) + half * lanes]);
  }
  if (slot != 0 || channel >= g.c) return;
  Pack<T, N> values;
  Pack<int32_t, N> places;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    values.v[k] = from_float<T>(found[k * kThreads + threadIdx.x].value);
    places.v[k] = found[k * kThreads + threadIdx.x].at;
  }
  store_pack(y + image * g.c + channel, values);
  store_pack(index + image * g.c + channel, places);
}

// One thread per pack of dx. blockIdx.x indexes within an image; blockIdx.y and the loop run over images.
template <typename T, int N, bool kMax>
__global__ void __launch_bounds__(kThreads) global_grad(GlobalPool g, Divider packs, const T* __restrict__ dy,
                                                        const int32_t* __restrict__ index, T* __restrict__ dx) {
  uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t pixel = packs.split(item);
  if (pixel >= static_cast<uint32_t>(g.pixels)) return;
  const float share = 1.0F / static_cast<float>(g.pixels);
  for (int64_t image = blockIdx.y; image < g.n; image += gridDim.y) {
    const int64_t from = image * g.c + item * N;
    const auto gradient = load_pack<N>(dy + from);
    Pack<T, N> result;
    if constexpr (kMax) {
      const auto place = load_pack<N>(index + from);
#pragma unroll
      for (int k = 0; k < N; ++k)
        result.v[k] = place.v[k] == static_cast<int32_t>(pixel) ? gradient.v[k] : from_float<T>(0);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) result.v[k] = from_float<T>(to_float(gradient.v[k]) * share);
    }
    store_pack(dx + (image * g.pixels + pixel) * g.c + item * N, result);
  }
}

template <bool kMax>
void backward(const GlobalPool& g, Element element, const void* dy, const int32_t* index, void* dx,
              cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    const int64_t items = static_cast<int64_t>(g.pixels) * (g.c / N);
    const dim3 grid(blocks_for(items, kThreads), static_cast<unsigned>(g.n < 65535 ? g.n : 65535));
    global_grad<T, N, kMax>
        <<<grid, kThreads, 0, stream>>>(g, Divider(g.c / N), static_cast<const T*>(dy), index, static_cast<T*>(dx));
    check_launch();
  });
}

}  // namespace

void launch_global_avg_pool(const GlobalPool& g, Element element, const void* x, void* y, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    const ChannelLanes at = lanes_of(g.c / N);
    global_mean<T, N><<<static_cast<unsigned>(g.n * at.tiles), kThreads, 0, stream>>>(
        g, at.lanes, at.tiles, static_cast<const T*>(x), static_cast<T*>(y));
    check_launch();
  });
}

void launch_global_max_pool(const GlobalPool& g, Element element, const void* x, void* y, int32_t* index,
                            cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    const ChannelLanes at = lanes_of(g.c / N);
    global_max<T, N><<<static_cast<unsigned>(g.n * at.tiles), kThreads, 0, stream>>>(
        g, at.lanes, at.tiles, static_cast<const T*>(x), static_cast<T*>(y), index);
    check_launch();
  });
}

void launch_global_avg_pool_grad(const GlobalPool& g, Element element, const void* dy, void* dx, cudaStream_t stream) {
  backward<false>(g, element, dy, nullptr, dx, stream);
}

void launch_global_max_pool_grad(const GlobalPool& g, Element element, const void* dy, const int32_t* index, void* dx,
                                 cudaStream_t stream) {
  backward<true>(g, element, dy, index, dx, stream);
}

}  // namespace plimsoll::engine::cuda
