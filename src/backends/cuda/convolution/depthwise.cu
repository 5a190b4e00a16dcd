// Depthwise convolutions, which are bound by memory. Each thread computes a tile of pixels for a few channels: it reads
// each pixel under the tile once and keeps weights and sums in registers. Neighbouring threads compute neighbouring
// channels, so a warp reads whole sectors; the pixels that neighbouring tiles share come from the caches.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/convolution/depthwise_launch.h"
#include "backends/cuda/convolution/sum_parts.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kThreads = 256;

// The channels of a thread, its tile, and the blocks that the registers must leave room for on a multiprocessor:
// measured on an H200 for kernels of K x K and a stride of S.
template <int P, int H, int W, int B>
struct Shape {
  static constexpr int kChannels = P, kHeight = H, kWidth = W, kBlocks = B;
};
template <int K, int S>
struct ForwardShape : Shape<4, 2, 4, 2> {};
template <>
struct ForwardShape<3, 2> : Shape<4, 2, 2, 3> {};
template <>
struct ForwardShape<5, 1> : Shape<2, 4, 4, 2> {};
template <>
struct ForwardShape<5, 2> : Shape<2, 2, 2, 2> {};
template <int S>
struct ForwardShape<7, S> : Shape<2, 2, 4, 1> {};
// The tiles of an input gradient are multiples of S.
template <int K, int S>
struct InputGradShape : ForwardShape<K, 1> {};
template <int K, int S>
struct WeightGradShape : Shape<2, 2, 4, 1> {};
template <>
struct WeightGradShape<3, 2> : Shape<2, 2, 2, 3> {};
template <>
struct WeightGradShape<5, 1> : Shape<2, 2, 2, 2> {};
template <>
struct WeightGradShape<5, 2> : Shape<1, 2, 2, 2> {};
template <int S>
struct WeightGradShape<7, S> : Shape<1, 2, 4, 2> {};

template <int P>
struct Floats {
  float v[P];
};

template <int P, typename T>
__device__ inline Floats<P> load_floats(const T* from) {
  const Pack<T, P> pack = load_pack<P>(from);
  Floats<P> floats{};
#pragma unroll
  for (int p = 0; p < P; ++p) floats.v[p] = to_float(pack.v[p]);
  return floats;
}

template <int P, typename T>
__device__ inline void store_floats(T* to, const Floats<P>& floats) {
  Pack<T, P> pack;
#pragma unroll
  for (int p = 0; p < P; ++p) pack.v[p] = from_float<T>(floats.v[p]);
  store_pack(to, pack);
}

template <int P>
__device__ inline void multiply_add(Floats<P>& sum, const Floats<P>& a, const Floats<P>& b) {
#pragma unroll
  for (int p = 0; p < P; ++p) sum.v[p] = fmaf(a.v[p], b.v[p], sum.v[p]);
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The tiles of all images, times the packs of channels of each: they are counted in the order images, rows, columns,
// channels, the last fastest.
struct Tiles {
  Divider channels, columns, rows;
  uint32_t count;
};

template <typename Shape>
Tiles tiles_of(int64_t images, int64_t height, int64_t width, int64_t channel_packs) {
  const int64_t rows = divide_up(height, Shape::kHeight), columns = divide_up(width, Shape::kWidth);
  return {Divider(channel_packs), Divider(columns), Divider(rows),
          static_cast<uint32_t>(images * rows * columns * channel_packs)};
}

// The first channel, row and column of a thread's tile.
struct Place {
  int channel, row, column;
  int64_t image;
};

template <typename Shape>
__device__ inline Place place_of(const Tiles& tiles, uint32_t index) {
  uint32_t column = tiles.channels.split(index);
  uint32_t row = tiles.columns.split(column);
  Place at{};
  at.image = tiles.rows.split(row);
  at.row = static_cast<int>(row) * Shape::kHeight;
  at.column = static_cast<int>(column) * Shape::kWidth;
  at.channel = static_cast<int>(index) * Shape::kChannels;
  return at;
}

// Loads neighbouring pixels of a row, zeros outside of the image. Every load has a valid address, so that no branch
// keeps one load from starting before another has ended.
template <int kCount, int P, typename T>
__device__ inline void load_row(Floats<P> (&pixels)[kCount], const T* image, int row, int first, int height, int width,
                                int channels) {
  const bool row_inside = row >= 0 && row < height;
  const T* const line = image + static_cast<int64_t>(min(max(row, 0), height - 1)) * width * channels;
#pragma unroll
  for (int q = 0; q < kCount; ++q) {
    const int column = first + q;
    const bool inside = row_inside && column >= 0 && column < width;
    const Floats<P> pixel = load_floats<P>(line + min(max(column, 0), width - 1) * channels);
#pragma unroll
    for (int p = 0; p < P; ++p) pixels[q].v[p] = inside ? pixel.v[p] : 0.0F;
  }
}

template <int K, int P, typename T>
__device__ inline void load_weights(Floats<P> (&weights)[K * K], const T* w, int channels) {
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) weights[tap] = load_floats<P>(w + tap * channels);
}

template <int K, int S, typename Shape, typename T>
__global__ void __launch_bounds__(kThreads, Shape::kBlocks)
    forward(DirectConvolution s, Tiles tiles, const T* x, const T* w, const T* bias, bool relu, T* y) {
  constexpr int P = Shape::kChannels, kHeight = Shape::kHeight, kWidth = Shape::kWidth;
  constexpr int kRows = (kHeight - 1) * S + K, kColumns = (kWidth - 1) * S + K;  // of the input under a tile
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= tiles.count) return;
  const Place at = place_of<Shape>(tiles, index);
  Floats<P> weights[K * K];
  load_weights<K>(weights, w + at.channel, s.c);
  Floats<P> start{};
  if (bias != nullptr) start = load_floats<P>(bias + at.channel);
  Floats<P> sums[kHeight][kWidth];
#pragma unroll
  for (int t = 0; t < kHeight * kWidth; ++t) sums[t / kWidth][t % kWidth] = start;
  const T* const image = x + at.image * s.h * s.w * s.c + at.channel;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Floats<P> pixels[kColumns];
    load_row(pixels, image, at.row * S - s.top + r, at.column * S - s.left, s.h, s.w, s.c);
#pragma unroll
    for (int t = 0; t < kHeight; ++t) {
      const int i = r - t * S;
      if (i < 0 || i >= K) continue;
#pragma unroll
      for (int u = 0; u < kWidth; ++u)
#pragma unroll
        for (int j = 0; j < K; ++j) multiply_add<P>(sums[t][u], pixels[u * S + j], weights[i * K + j]);
    }
  }
#pragma unroll
  for (int t = 0; t < kHeight; ++t)
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      if (at.row + t >= s.oh || at.column + u >= s.ow) continue;
      Floats<P> sum = sums[t][u];
      if (relu)
#pragma unroll
        for (int p = 0; p < P; ++p) sum.v[p] = sum.v[p] < 0 ? 0.0F : sum.v[p];
      store_floats<P>(y + ((at.image * s.oh + at.row + t) * s.ow + at.column + u) * s.c + at.channel, sum);
    }
}

// Tiles begin at the padding's first pixel: so row t of a tile takes the taps t, t - S, t - 2S, ...
template <int K, int S, typename Shape, typename T>
__global__ void __launch_bounds__(kThreads, Shape::kBlocks)
    input_grad(DirectConvolution s, Tiles tiles, const T* dy, const T* w, T* dx) {
  constexpr int P = Shape::kChannels, kHeight = Shape::kHeight, kWidth = Shape::kWidth;
  constexpr int kBefore = (K - 1) / S;  // gradients before the tile's first row or column
  constexpr int kRows = kBefore + (kHeight - 1) / S + 1, kColumns = kBefore + (kWidth - 1) / S + 1;
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= tiles.count) return;
  const Place at = place_of<Shape>(tiles, index);
  Floats<P> weights[K * K];
  load_weights<K>(weights, w + at.channel, s.c);
  Floats<P> sums[kHeight][kWidth] = {};
  const T* const gradients = dy + at.image * s.oh * s.ow * s.c + at.channel;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Floats<P> pixels[kColumns];
    load_row(pixels, gradients, at.row / S + r - kBefore, at.column / S - kBefore, s.oh, s.ow, s.c);
#pragma unroll
    for (int t = 0; t < kHeight; ++t) {
      const int i = t - (r - kBefore) * S;
      if (i < 0 || i >= K) continue;
#pragma unroll
      for (int u = 0; u < kWidth; ++u)
#pragma unroll
        for (int q = 0; q < kColumns; ++q) {
          const int j = u - (q - kBefore) * S;
          if (j >= 0 && j < K) multiply_add<P>(sums[t][u], pixels[q], weights[i * K + j]);
        }
    }
  }
#pragma unroll
  for (int t = 0; t < kHeight; ++t)
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      const int row = at.row + t - s.top, column = at.column + u - s.left;
      if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
      store_floats<P>(dx + ((at.image * s.h + row) * s.w + column) * s.c + at.channel, sums[t][u]);
    }
}

// Each block sums the tiles of its part (blockIdx.y) for `lanes` neighbouring packs of channels. Threads with the same
// channels take the part's tiles in turn, and their sums are added in a fixed order.
template <int K, int S, typename Shape, typename T, typename Out>
__global__ void __launch_bounds__(kThreads, Shape::kBlocks)
    weight_grad(DirectConvolution s, Tiles tiles, int lanes, const T* x, const T* dy, Out* dw) {
  constexpr int P = Shape::kChannels, kHeight = Shape::kHeight, kWidth = Shape::kWidth;
  constexpr int kRows = (kHeight - 1) * S + K, kColumns = (kWidth - 1) * S + K;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1), turn = static_cast<int>(threadIdx.x) / lanes;
  const int turns = kThreads / lanes;
  const int channel = (static_cast<int>(blockIdx.x) * lanes + lane) * P;
  const bool active = channel < s.c;
  Floats<P> sums[K * K] = {};
  const auto first = static_cast<uint32_t>(static_cast<uint64_t>(tiles.count) * blockIdx.y / gridDim.y);
  const auto end = static_cast<uint32_t>(static_cast<uint64_t>(tiles.count) * (blockIdx.y + 1) / gridDim.y);
  for (uint32_t tile = first + turn; active && tile < end; tile += turns) {
    const Place at = place_of<Shape>(tiles, tile);
    Floats<P> gradients[kHeight][kWidth];
#pragma unroll
    for (int t = 0; t < kHeight; ++t)
      load_row(gradients[t], dy + at.image * s.oh * s.ow * s.c + channel, at.row + t, at.column, s.oh, s.ow, s.c);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Floats<P> pixels[kColumns];
      load_row(pixels, x + at.image * s.h * s.w * s.c + channel, at.row * S - s.top + r, at.column * S - s.left, s.h,
               s.w, s.c);
#pragma unroll
      for (int t = 0; t < kHeight; ++t) {
        const int i = r - t * S;
        if (i < 0 || i >= K) continue;
#pragma unroll
        for (int u = 0; u < kWidth; ++u)
#pragma unroll
          for (int j = 0; j < K; ++j) multiply_add<P>(sums[i * K + j], pixels[u * S + j], gradients[t][u]);
      }
    }
  }
  __shared__ Floats<P> shared[kThreads];
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) {
    __syncthreads();
    shared[threadIdx.x] = sums[tap];
    for (int half = turns / 2; half > 0; half /= 2) {
      __syncthreads();
      if (turn >= half) continue;
#pragma unroll
      for (int p = 0; p < P; ++p) shared[threadIdx.x].v[p] += shared[threadIdx.x + half * lanes].v[p];
    }
    if (turn != 0 || !active) continue;
    store_floats<P>(dw + (static_cast<int64_t>(blockIdx.y) * K * K + tap) * s.c + channel, shared[threadIdx.x]);
  }
}

// Powers of two: the most neighbouring packs of channels that leave few threads of the last block without any.
int lanes_for(int64_t packs) {
  for (const int lanes : {32, 16})
    if (divide_up(packs, lanes) * lanes * 7 <= packs * 8) return lanes;
  return 8;
}

// The same shape for single channels.
template <typename Wide>
using Single = Shape<1, Wide::kHeight, Wide::kWidth, Wide::kBlocks>;

// Calls f.operator()<K, S, Shape, T>() with the kernel's size, its stride, the shape of a thread's work (Of<K, S>, or
// one channel if the channels do not divide) and the element's type.
template <template <int, int> typename Of, typename F>
void with_depthwise(DType dtype, const DirectConvolution& conv, F f) {
  const auto with_shape = [&]<int K, int S, typename T>() {
    using Wide = Of<K, S>;
    if (conv.c % Wide::kChannels == 0)
      f.template operator()<K, S, Wide, T>();
    else
      f.template operator()<K, S, Single<Wide>, T>();
  };
  const auto with_stride = [&]<int K, typename T>() {
    if (conv.sh == 1) with_shape.template operator()<K, 1, T>();
    if (conv.sh == 2) with_shape.template operator()<K, 2, T>();
  };
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (conv.kh == 3) with_stride.template operator()<3, T>();
    if (conv.kh == 5) with_stride.template operator()<5, T>();
    if (conv.kh == 7) with_stride.template operator()<7, T>();
  });
}

}  // namespace

void depthwise_forward(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* w,
                       const void* bias, bool relu, void* y) {
  with_depthwise<ForwardShape>(dtype, conv, [&]<int K, int S, typename Shape, typename T>() {
    const Tiles tiles = tiles_of<Shape>(conv.n, conv.oh, conv.ow, conv.c / Shape::kChannels);
    forward<K, S, Shape, T><<<blocks_for(tiles.count, kThreads), kThreads, 0, stream>>>(
        conv, tiles, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), relu,
        static_cast<T*>(y));
  });
}

void depthwise_input_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* dy,
                          const void* w, void* dx) {
  with_depthwise<InputGradShape>(dtype, conv, [&]<int K, int S, typename Shape, typename T>() {
    const Tiles tiles = tiles_of<Shape>(conv.n, conv.h + conv.top, conv.w + conv.left, conv.c / Shape::kChannels);
    input_grad<K, S, Shape, T><<<blocks_for(tiles.count, kThreads), kThreads, 0, stream>>>(
        conv, tiles, static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx));
  });
}

void depthwise_weight_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x,
                           const void* dy, void* dw, float* sums, int64_t parts) {
  constexpr int64_t kBlocks = 1056;  // enough to fill a card
  with_depthwise<WeightGradShape>(dtype, conv, [&]<int K, int S, typename Shape, typename T>() {
    const Tiles tiles = tiles_of<Shape>(conv.n, conv.oh, conv.ow, 1);
    const int64_t packs = conv.c / Shape::kChannels;
    const int lanes = lanes_for(packs);
    const int64_t blocks = divide_up(packs, lanes), used = std::min(parts, divide_up(kBlocks, blocks));
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(used));
    const auto *from = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    if (used == 1) {
      weight_grad<K, S, Shape, T, T>
          <<<grid, kThreads, 0, stream>>>(conv, tiles, lanes, from, gradient, static_cast<T*>(dw));
      return;
    }
    weight_grad<K, S, Shape, T, float><<<grid, kThreads, 0, stream>>>(conv, tiles, lanes, from, gradient, sums);
    sum_weight_parts(stream, conv, sums, used, static_cast<T*>(dw));
  });
}

}  // namespace plimsoll::engine::cuda
