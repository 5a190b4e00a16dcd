// upsample2d by integer factors and its gradient. Both gather: a thread computes a pack of channels of one output
// pixel.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/move/launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

// The two input positions that an output position reads, and the weight of the second one. Pixel centres are at
// half-integers and edges are clamped, as in tf.image.resize. Positions are integers in units of 1 / (2 * factor), so
// none is rounded.
struct Taps {
  int low, high;
  float weight;

  __device__ Taps(int at, int factor, int size) {
    const int position = 2 * at + 1 - factor, unit = 2 * factor;
    const int floor = position < 0 ? -1 : position / unit;
    low = max(floor, 0);
    high = min(floor + 1, size - 1);
    weight = static_cast<float>(position - floor * unit) / static_cast<float>(unit);
  }
  // The weight with which the output position reads input position `from`.
  __device__ float on(int from) const { return (low == from ? 1.0F - weight : 0.0F) + (high == from ? weight : 0.0F); }
};

// Maps a thread to (row, column, pack) of the image that is written; blockIdx.y and a loop run over images.
struct Pixels {
  Divider packs, columns;
  int rows;
};

template <typename T, int N, bool kBilinear>
__global__ void __launch_bounds__(kThreads)
    upsample(Upsampling g, Pixels pixels, const T* __restrict__ x, T* __restrict__ y) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  uint32_t pack = item;
  uint32_t column = pixels.packs.split(pack);
  const uint32_t row = pixels.columns.split(column);
  if (row >= static_cast<uint32_t>(pixels.rows)) return;
  const int64_t image_in = static_cast<int64_t>(g.h) * g.w * g.c, image_out = image_in * g.fh * g.fw;
  const auto at = [&](int r, int c) { return (static_cast<int64_t>(r) * g.w + c) * g.c + pack * N; };
  if constexpr (kBilinear) {
    const Taps rows(static_cast<int>(row), g.fh, g.h), columns(static_cast<int>(column), g.fw, g.w);
    const int64_t corners[4] = {at(rows.low, columns.low), at(rows.low, columns.high), at(rows.high, columns.low),
                                at(rows.high, columns.high)};
    const float weights[4] = {(1 - rows.weight) * (1 - columns.weight), (1 - rows.weight) * columns.weight,
                              rows.weight * (1 - columns.weight), rows.weight * columns.weight};
    for (int64_t image = blockIdx.y; image < g.n; image += gridDim.y) {
      Pack<T, N> packs[4], result;
#pragma unroll
      for (int i = 0; i < 4; ++i) packs[i] = load_pack<N>(x + image * image_in + corners[i]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += weights[i] * to_float(packs[i].v[k]);
        result.v[k] = from_float<T>(sum);
      }
      store_pack(y + image * image_out + static_cast<int64_t>(item) * N, result);
    }
  } else {
    const int64_t from = at(static_cast<int>(row) / g.fh, static_cast<int>(column) / g.fw);
    for (int64_t image = blockIdx.y; image < g.n; image += gridDim.y)
      store_pack(y + image * image_out + static_cast<int64_t>(item) * N, load_pack<N>(x + image * image_in + from));
  }
}

template <typename T, int N, bool kBilinear>
__global__ void __launch_bounds__(kThreads)
    upsample_grad(Upsampling g, Pixels pixels, const T* __restrict__ dy, T* __restrict__ dx) {
  constexpr int kReach = kBilinear ? 1 : 0;
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  uint32_t pack = item;
  uint32_t split = pixels.packs.split(pack);
  const auto row = static_cast<int>(pixels.columns.split(split));
  const auto column = static_cast<int>(split);
  if (row >= pixels.rows) return;
  const int oh = g.h * g.fh, ow = g.w * g.fw;
  const int64_t image_out = static_cast<int64_t>(g.h) * g.w * g.c, image_in = image_out * g.fh * g.fw;
  const int top = max(0, (row - kReach) * g.fh), bottom = min(oh, (row + 1 + kReach) * g.fh);
  const int left = max(0, (column - kReach) * g.fw), right = min(ow, (column + 1 + kReach) * g.fw);
  for (int64_t image = blockIdx.y; image < g.n; image += gridDim.y) {
    float sum[N] = {};
    for (int r = top; r < bottom; ++r) {
      const float down = kBilinear ? Taps(r, g.fh, g.h).on(row) : 1.0F;
      if (down == 0) continue;
      for (int c = left; c < right; ++c) {
        const float weight = kBilinear ? down * Taps(c, g.fw, g.w).on(column) : 1.0F;
        if (weight == 0) continue;
        const auto from = load_pack<N>(dy + image * image_in + (static_cast<int64_t>(r) * ow + c) * g.c + pack * N);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += weight * to_float(from.v[k]);
      }
    }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = from_float<T>(sum[k]);
    store_pack(dx + image * image_out + static_cast<int64_t>(item) * N, result);
  }
}

// Calls launch(grid, pixels) for an image of rows x columns pixels.
template <int N, typename F>
void over_pixels(const Upsampling& g, int rows, int columns, F launch) {
  const int64_t items = static_cast<int64_t>(rows) * columns * (g.c / N);
  const dim3 grid(blocks_for(items, kThreads), static_cast<unsigned>(std::min<int64_t>(g.n, 65535)));
  launch(grid, Pixels{Divider(g.c / N), Divider(columns), rows});
  check_launch();
}

}  // namespace

void launch_upsample(const Upsampling& g, Element element, const void* x, void* y, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    over_pixels<N>(g, g.h * g.fh, g.w * g.fw, [&](dim3 grid, const Pixels& pixels) {
      const auto kernel = g.bilinear ? upsample<T, N, true> : upsample<T, N, false>;
      kernel<<<grid, kThreads, 0, stream>>>(g, pixels, static_cast<const T*>(x), static_cast<T*>(y));
    });
  });
}

void launch_upsample_grad(const Upsampling& g, Element element, const void* dy, void* dx, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    over_pixels<N>(g, g.h, g.w, [&](dim3 grid, const Pixels& pixels) {
      const auto kernel = g.bilinear ? upsample_grad<T, N, true> : upsample_grad<T, N, false>;
      kernel<<<grid, kThreads, 0, stream>>>(g, pixels, static_cast<const T*>(dy), static_cast<T*>(dx));
    });
  });
}

}  // namespace plimsoll::engine::cuda
