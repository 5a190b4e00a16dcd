// Depthwise convolutions, which are bound by memory. Each thread computes a tile of pixels for one or two channels:
// it reads each pixel under the tile once and keeps weights and sums in registers. Neighbouring threads compute
// neighbouring channels, so a warp reads whole cache lines; the pixels that neighbouring tiles share come from the
// cache.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/convolution/depthwise_launch.h"
#include "backends/cuda/convolution/sum_parts.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kTile = 4;  // pixels of a tile in each direction; a multiple of the strides

struct Floats2 {
  float v[2];
};

template <int P, typename T>
__device__ inline Floats2 load_floats(const T* from) {
  const Pack<T, P> pack = load_pack<P>(from);
  Floats2 floats{};
#pragma unroll
  for (int p = 0; p < P; ++p) floats.v[p] = to_float(pack.v[p]);
  return floats;
}

template <int P, typename T>
__device__ inline void store_floats(T* to, const Floats2& floats) {
  Pack<T, P> pack;
#pragma unroll
  for (int p = 0; p < P; ++p) pack.v[p] = from_float<T>(floats.v[p]);
  store_pack(to, pack);
}

template <int P>
__device__ inline void multiply_add(Floats2& sum, const Floats2& a, const Floats2& b) {
#pragma unroll
  for (int p = 0; p < P; ++p) sum.v[p] = fmaf(a.v[p], b.v[p], sum.v[p]);
}

// The tiles of an image, and the channels of one thread. The thread index counts channels fastest, then columns and
// rows of tiles, then images.
struct Tiles {
  Divider channels, columns, rows;
  uint32_t count;  // threads
};

Tiles tiles_of(int images, int height, int width, int channel_packs) {
  const int columns = (width + kTile - 1) / kTile, rows = (height + kTile - 1) / kTile;
  return {Divider(channel_packs), Divider(columns), Divider(rows),
          static_cast<uint32_t>(static_cast<int64_t>(images) * rows * columns * channel_packs)};
}

struct TilePlace {
  int channel, row, column;
  int64_t image;
};

template <int P>
__device__ inline TilePlace place_of(const Tiles& tiles, uint32_t index) {
  TilePlace place{};
  uint32_t rest = tiles.channels.split(index);
  place.channel = static_cast<int>(index) * P;
  uint32_t row = tiles.columns.split(rest);
  place.column = static_cast<int>(rest) * kTile;
  place.image = tiles.rows.split(row);
  place.row = static_cast<int>(row) * kTile;
  return place;
}

template <int K, int S, int P, typename T>
__global__ void __launch_bounds__(256)
    forward(DirectConvolution s, Tiles tiles, const T* x, const T* w, const T* bias, bool relu, T* y) {
  constexpr int kSpan = (kTile - 1) * S + K;  // input pixels under a tile in each direction
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= tiles.count) return;
  const TilePlace at = place_of<P>(tiles, index);
  Floats2 weights[K * K];
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) weights[tap] = load_floats<P>(w + tap * s.c + at.channel);
  Floats2 start{};
  if (bias != nullptr) start = load_floats<P>(bias + at.channel);
  Floats2 sums[kTile][kTile];
#pragma unroll
  for (int t = 0; t < kTile * kTile; ++t) sums[t / kTile][t % kTile] = start;
  const int top = at.row * S - s.top, left = at.column * S - s.left;
  const T* const image = x + at.image * s.h * s.w * s.c + at.channel;
#pragma unroll
  for (int r = 0; r < kSpan; ++r) {
    const int row = top + r;
    const bool row_inside = row >= 0 && row < s.h;
    Floats2 pixels[kSpan];
#pragma unroll
    for (int q = 0; q < kSpan; ++q) {
      const int column = left + q;
      const bool inside = row_inside && column >= 0 && column < s.w;
      pixels[q] = inside ? load_floats<P>(image + (static_cast<int64_t>(row) * s.w + column) * s.c) : Floats2{};
    }
#pragma unroll
    for (int t = 0; t < kTile; ++t) {
      const int i = r - t * S;
      if (i < 0 || i >= K) continue;
#pragma unroll
      for (int u = 0; u < kTile; ++u)
#pragma unroll
        for (int j = 0; j < K; ++j) multiply_add<P>(sums[t][u], pixels[u * S + j], weights[i * K + j]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTile; ++t)
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      if (at.row + t >= s.oh || at.column + u >= s.ow) continue;
      Floats2 sum = sums[t][u];
      if (relu)
#pragma unroll
        for (int p = 0; p < P; ++p) sum.v[p] = sum.v[p] < 0 ? 0.0F : sum.v[p];
      store_floats<P>(y + ((at.image * s.oh + at.row + t) * s.ow + at.column + u) * s.c + at.channel, sum);
    }
}

// Tiles begin at the padding's first pixel: so row t of a tile takes the taps t, t - S, t - 2S, ...
template <int K, int S, int P, typename T>
__global__ void __launch_bounds__(256) input_grad(DirectConvolution s, Tiles tiles, const T* dy, const T* w, T* dx) {
  constexpr int kBefore = (K - 1) / S;                  // gradients before the tile's first row
  constexpr int kSpan = kBefore + (kTile - 1) / S + 1;  // gradients that reach a tile in each direction
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= tiles.count) return;
  const TilePlace at = place_of<P>(tiles, index);
  Floats2 weights[K * K];
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) weights[tap] = load_floats<P>(w + tap * s.c + at.channel);
  Floats2 sums[kTile][kTile] = {};
  const T* const gradients = dy + at.image * s.oh * s.ow * s.c + at.channel;
#pragma unroll
  for (int r = 0; r < kSpan; ++r) {
    const int row = at.row / S + r - kBefore;
    const bool row_inside = row >= 0 && row < s.oh;
    Floats2 pixels[kSpan];
#pragma unroll
    for (int q = 0; q < kSpan; ++q) {
      const int column = at.column / S + q - kBefore;
      const bool inside = row_inside && column >= 0 && column < s.ow;
      pixels[q] = inside ? load_floats<P>(gradients + (static_cast<int64_t>(row) * s.ow + column) * s.c) : Floats2{};
    }
#pragma unroll
    for (int t = 0; t < kTile; ++t) {
      const int i = t - (r - kBefore) * S;
      if (i < 0 || i >= K) continue;
#pragma unroll
      for (int u = 0; u < kTile; ++u)
#pragma unroll
        for (int q = 0; q < kSpan; ++q) {
          const int j = u - (q - kBefore) * S;
          if (j >= 0 && j < K) multiply_add<P>(sums[t][u], pixels[q], weights[i * K + j]);
        }
    }
  }
#pragma unroll
  for (int t = 0; t < kTile; ++t)
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      const int row = at.row + t - s.top, column = at.column + u - s.left;
      if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
      store_floats<P>(dx + ((at.image * s.h + row) * s.w + column) * s.c + at.channel, sums[t][u]);
    }
}

constexpr int kGradThreads = 256;

// Each block sums the tiles of its part (blockIdx.y) for `packs` channels or pairs of channels; threads with the same
// channels take the part's tiles in turn, and their sums are added in a fixed order.
template <int K, int S, int P, typename T, typename Out>
__global__ void __launch_bounds__(kGradThreads)
    weight_grad(DirectConvolution s, Tiles tiles, int packs, const T* x, const T* dy, Out* dw) {
  constexpr int kSpan = (kTile - 1) * S + K;
  const int pack = static_cast<int>(threadIdx.x) % packs, lane = static_cast<int>(threadIdx.x) / packs;
  const int lanes = kGradThreads / packs;
  const int channel = (static_cast<int>(blockIdx.x) * packs + pack) * P;
  const bool active = channel < s.c;
  Floats2 sums[K * K] = {};
  // The tiles of this part, in steps of `lanes`.
  const uint32_t first = static_cast<uint32_t>(static_cast<uint64_t>(tiles.count) * blockIdx.y / gridDim.y);
  const uint32_t end = static_cast<uint32_t>(static_cast<uint64_t>(tiles.count) * (blockIdx.y + 1) / gridDim.y);
  for (uint32_t tile = first + static_cast<uint32_t>(lane); active && tile < end;
       tile += static_cast<uint32_t>(lanes)) {
    const TilePlace at = place_of<P>(tiles, tile);
    Floats2 gradients[kTile][kTile];
#pragma unroll
    for (int t = 0; t < kTile; ++t)
#pragma unroll
      for (int u = 0; u < kTile; ++u) {
        const bool inside = at.row + t < s.oh && at.column + u < s.ow;
        const int64_t pixel = (at.image * s.oh + at.row + t) * s.ow + at.column + u;
        gradients[t][u] = inside ? load_floats<P>(dy + pixel * s.c + channel) : Floats2{};
      }
    const int top = at.row * S - s.top, left = at.column * S - s.left;
    const T* const image = x + at.image * s.h * s.w * s.c + channel;
#pragma unroll
    for (int r = 0; r < kSpan; ++r) {
      const int row = top + r;
      const bool row_inside = row >= 0 && row < s.h;
      Floats2 pixels[kSpan];
#pragma unroll
      for (int q = 0; q < kSpan; ++q) {
        const int column = left + q;
        const bool inside = row_inside && column >= 0 && column < s.w;
        pixels[q] = inside ? load_floats<P>(image + (static_cast<int64_t>(row) * s.w + column) * s.c) : Floats2{};
      }
#pragma unroll
      for (int t = 0; t < kTile; ++t) {
        const int i = r - t * S;
        if (i < 0 || i >= K) continue;
#pragma unroll
        for (int u = 0; u < kTile; ++u)
#pragma unroll
          for (int j = 0; j < K; ++j) multiply_add<P>(sums[i * K + j], pixels[u * S + j], gradients[t][u]);
      }
    }
  }
  __shared__ Floats2 shared[kGradThreads];
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) {
    __syncthreads();
    shared[threadIdx.x] = sums[tap];
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half) continue;
#pragma unroll
      for (int p = 0; p < P; ++p) shared[threadIdx.x].v[p] += shared[threadIdx.x + half * packs].v[p];
    }
    if (lane != 0 || !active) continue;
    Out* const to = dw + (static_cast<int64_t>(blockIdx.y) * K * K + tap) * s.c + channel;
    store_floats<P>(to, shared[threadIdx.x]);
  }
}

// Calls f.operator()<K, S, P, T>() with the kernel's size, its stride, the channels of a thread and the element's type.
template <typename F>
void with_depthwise(DType dtype, const DirectConvolution& conv, F f) {
  const auto with_kernel = [&]<int S, int P, typename T>() {
    if (conv.kh == 3) f.template operator()<3, S, P, T>();
    if (conv.kh == 5) f.template operator()<5, S, P, T>();
    if (conv.kh == 7) f.template operator()<7, S, P, T>();
  };
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool pairs = conv.c % 2 == 0;
    if (conv.sh == 1) pairs ? with_kernel.template operator()<1, 2, T>() : with_kernel.template operator()<1, 1, T>();
    if (conv.sh == 2) pairs ? with_kernel.template operator()<2, 2, T>() : with_kernel.template operator()<2, 1, T>();
  });
}

constexpr int kThreads = 256;

// Powers of two, so that threads divide evenly: the widest that leaves few threads of the last block without a channel.
int packs_of_block(int packs) {
  for (const int wide : {32, 16}) {
    const int padded = (packs + wide - 1) / wide * wide;
    if (padded * 7 <= packs * 8) return wide;
  }
  return 8;
}

}  // namespace

bool is_depthwise(const DirectConvolution& conv) {
  const bool each_channel = conv.groups == conv.c && conv.o == conv.c;
  const bool square = conv.kh == conv.kw && conv.sh == conv.sw && conv.dh == 1 && conv.dw == 1;
  const bool known = (conv.kh == 3 || conv.kh == 5 || conv.kh == 7) && (conv.sh == 1 || conv.sh == 2);
  // The tiles are counted with 31 bits.
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const auto tiles = [&](int64_t height, int64_t width) {
    return conv.n * ((height + kTile - 1) / kTile) * ((width + kTile - 1) / kTile) * conv.c;
  };
  return each_channel && square && known && tiles(conv.oh, conv.ow) <= kMost &&
         tiles(conv.h + conv.top, conv.w + conv.left) <= kMost;
}

void depthwise_forward(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* w,
                       const void* bias, bool relu, void* y) {
  with_depthwise(dtype, conv, [&]<int K, int S, int P, typename T>() {
    const Tiles tiles = tiles_of(conv.n, conv.oh, conv.ow, conv.c / P);
    forward<K, S, P, T><<<blocks_for(tiles.count, kThreads), kThreads, 0, stream>>>(
        conv, tiles, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), relu,
        static_cast<T*>(y));
  });
}

void depthwise_input_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* dy,
                          const void* w, void* dx) {
  with_depthwise(dtype, conv, [&]<int K, int S, int P, typename T>() {
    const Tiles tiles = tiles_of(conv.n, conv.h + conv.top, conv.w + conv.left, conv.c / P);
    input_grad<K, S, P, T><<<blocks_for(tiles.count, kThreads), kThreads, 0, stream>>>(
        conv, tiles, static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx));
  });
}

void depthwise_weight_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x,
                           const void* dy, void* dw, float* sums, int64_t parts) {
  constexpr int64_t kBlocks = 1056;  // enough to fill a card
  with_depthwise(dtype, conv, [&]<int K, int S, int P, typename T>() {
    const Tiles tiles = tiles_of(conv.n, conv.oh, conv.ow, 1);
    const int packs = packs_of_block(conv.c / P);
    const auto blocks = blocks_for(conv.c / P, packs);
    const auto used = static_cast<unsigned>(std::min(parts, (kBlocks + blocks - 1) / blocks));
    const auto *from = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    const dim3 grid(blocks, used);
    if (used == 1) {
      weight_grad<K, S, P, T, T>
          <<<grid, kGradThreads, 0, stream>>>(conv, tiles, packs, from, gradient, static_cast<T*>(dw));
      return;
    }
    weight_grad<K, S, P, T, float><<<grid, kGradThreads, 0, stream>>>(conv, tiles, packs, from, gradient, sums);
    sum_weight_parts(stream, conv, sums, used, static_cast<T*>(dw));
  });
}

}  // namespace plimsoll::engine::cuda
