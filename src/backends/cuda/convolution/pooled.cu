// Implicit GEMM of a convolution over few input channels fused with a 2 x 2 max pooling, and its weight gradient; see
// pooled.h for the shapes and pooled_launch.h for inputs and outputs. The unpooled image is never stored.
#include "backends/cuda/convolution/pooled_launch.h"

#include <algorithm>

#include "backends/cuda/convolution/few_channels.cuh"
#include "backends/cuda/convolution/row_segments.cuh"

namespace plimsoll::engine::cuda {
namespace {

__host__ __device__ inline Lines lines_of(const PooledShape& p) {
  return {p.lines, 1, p.pitch};
}

// Loads the image rows under a segment of pooled pixels, for both rows of its windows.
template <typename T>
__device__ void load_segment(const PooledShape& p, const Segment& at, const T* x, T* lines) {
  const ImplicitGemmShape& s = p.conv;
  load_lines(s, lines_of(p), at.image, 2 * at.line * s.sh - s.top, 2 * at.first * s.sw - s.left,
             numbers_under(s, 2 * min(kPooledPixels, p.ow - at.first)), x, lines);
}

// Each warp computes eight windows at a time. Of the 16 rows of an mma fragment, row g is the left pixel of window g
// and row g + 8 the right one, so that a lane has whole windows in its registers. The upper row is computed first, then
// the lower one.
template <typename T, int kNumbers>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelResident<kNumbers>)
    pooled_forward(PooledShape p, Segments segments, const T* __restrict__ x, const T* __restrict__ w,
                   const T* __restrict__ bias, bool relu, T* __restrict__ y, uint8_t* __restrict__ index) {
  constexpr int kFours = kFewChannelTiles / 2;  // groups of four adjacent output channels per lane
  const ImplicitGemmShape& s = p.conv;
  extern __shared__ char shared[];
  T* const lines = reinterpret_cast<T*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, first_output = static_cast<int>(blockIdx.y) * kFewChannelOutputs;
  const int shift = s.sw * s.c;
  const FewChannelWeights<T, kNumbers> weights(s, lines_of(p), w, bias, first_output);
  for (int i = static_cast<int>(blockIdx.x); i < segments.count; i += static_cast<int>(gridDim.x)) {
    const Segment at = segments.at(i, p.oh);
    __syncthreads();
    load_segment(p, at, x, lines);
    __syncthreads();
    const int count = min(kPooledPixels, p.ow - at.first);
    const int64_t to = ((at.image * p.oh + at.line) * p.ow + at.first) * s.o + first_output;
    for (int begin = warp * kGroup; begin < count; begin += kFewChannelWarps * kGroup) {
      float best[kFours][4];
      uint32_t taps[kFours] = {};
#pragma unroll
      for (int line = 0; line < 2; ++line) {
        const T* const left = lines + line * s.sh * p.pitch + 2 * (begin + g) * shift;
        float c[kFewChannelTiles][4];
        weights.multiply(left, left + shift, c);
#pragma unroll
        for (int four = 0; four < kFours; ++four)
#pragma unroll
          for (int e = 0; e < 4; ++e)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
              float v = c[four * 2 + e / 2][column * 2 + e % 2];
              if (relu && v < 0) v = 0.0F;
              const int tap = line * 2 + column;
              if (tap == 0 || v > best[four][e]) {
                best[four][e] = v;
                taps[four] = (taps[four] & ~(0xffU << (8 * e))) | static_cast<uint32_t>(tap) << (8 * e);
              }
            }
      }
      if (begin + g >= count) continue;
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        const int output = four * 16 + t * 4;
        if (first_output + output >= s.o) continue;
        Pack<T, 4> values;
#pragma unroll
        for (int e = 0; e < 4; ++e) values.v[e] = from_float<T>(best[four][e]);
        const int64_t out = to + static_cast<int64_t>(begin + g) * s.o + output;
        store_pack(y + out, values);
        *reinterpret_cast<uint32_t*>(index + out) = taps[four];
      }
    }
  }
}

// Loads the pooled gradients of a segment and their positions in the windows, kFewChannelOutputs channels per pixel;
// zeros after the last pixel.
template <typename T>
__device__ void load_gradients(const PooledShape& p, const Segment& at, int first_output, const T* dy,
                               const uint8_t* index, T* rows, uint32_t* taps) {
  constexpr int kWide = kPack<T>, kPacks = kFewChannelOutputs / kWide,
                kEach = kPooledPixels * kPacks / kFewChannelThreads;
  constexpr int kWords = kFewChannelOutputs / 4, kEachWord = kPooledPixels * kWords / kFewChannelThreads;
  const int o = p.conv.o, count = min(kPooledPixels, p.ow - at.first),
            outputs = min(kFewChannelOutputs, o - first_output);
  const int64_t from = ((at.image * p.oh + at.line) * p.ow + at.first) * o + first_output;
  const auto there = [&](int pixel, int output) { return pixel < count && output < outputs; };
  const auto place = [&](int pixel, int output) {
    return from + (there(pixel, output) ? static_cast<int64_t>(pixel) * o + output : 0);
  };
  Pack<T, kWide> packs[kEach];
  uint32_t words[kEachWord];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int i = static_cast<int>(threadIdx.x) + u * kFewChannelThreads;
    packs[u] = load_pack<kWide>(dy + place(i / kPacks, i % kPacks * kWide));
  }
#pragma unroll
  for (int u = 0; u < kEachWord; ++u) {
    const int i = static_cast<int>(threadIdx.x) + u * kFewChannelThreads;
    words[u] = *reinterpret_cast<const uint32_t*>(index + place(i / kWords, i % kWords * 4));
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int i = static_cast<int>(threadIdx.x) + u * kFewChannelThreads;
    store_pack(rows + i * kWide, there(i / kPacks, i % kPacks * kWide) ? packs[u] : Pack<T, kWide>{});
  }
#pragma unroll
  for (int u = 0; u < kEachWord; ++u) taps[static_cast<int>(threadIdx.x) + u * kFewChannelThreads] = words[u];
}

// The pixels of a k step are those of whole windows, four per window: pixel k is position k % 4 of window k / 4. It has
// the window's gradient if it was the maximum, else zero. A tile's columns are output channels that are four apart, so
// that a lane reads a window's values for all tiles at once.
template <typename T, int kNumbers>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelResident<kNumbers>)
    pooled_weight_grad(PooledShape p, Segments segments, const T* __restrict__ x, const T* __restrict__ dy,
                       const uint8_t* __restrict__ index, bool one, int width, float* __restrict__ parts) {
  using M = Matrix<T>;
  using Numbers = FewChannelNumbers<T, kNumbers>;
  constexpr int kWindows = M::kStep / 4;
  static_assert(kFewChannelTiles == 4);
  const ImplicitGemmShape& s = p.conv;
  extern __shared__ char shared[];
  T* const gradients = reinterpret_cast<T*>(shared);
  uint32_t* const taps = reinterpret_cast<uint32_t*>(gradients + kPooledPixels * kFewChannelOutputs);
  T* const lines = reinterpret_cast<T*>(taps + kPooledPixels * kFewChannelOutputs / 4);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, first_output = static_cast<int>(blockIdx.y) * kFewChannelOutputs;
  const int shift = s.sw * s.c;
  const Numbers numbers(s, lines_of(p), one);
  float c[Numbers::kRows][kFewChannelTiles][4] = {};
  for (int i = static_cast<int>(blockIdx.x); i < segments.count; i += static_cast<int>(gridDim.x)) {
    const Segment at = segments.at(i, p.oh);
    __syncthreads();
    load_gradients(p, at, first_output, dy, index, gradients, taps);
    load_segment(p, at, x, lines);
    __syncthreads();
    const int count = min(kPooledPixels, p.ow - at.first);
    for (int begin = warp * kWindows; begin < count; begin += kFewChannelWarps * kWindows) {
      uint32_t b[kFewChannelTiles][2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int k = kWindows == 2 ? t + 4 * r : 2 * t + 8 * r;  // the first k that along() calls
        const int window = (begin + k / 4) * kFewChannelOutputs / 4 + g;
        const auto four = *reinterpret_cast<const Pack<T, 4>*>(gradients + window * 4);
        const uint32_t belongs = taps[window];
#pragma unroll
        for (int j = 0; j < kFewChannelTiles; ++j)
          b[j][r] = M::along(t, r, [&](int pixel) {
            const bool here = (belongs >> (8 * j) & 0xffU) == static_cast<uint32_t>(pixel % 4);
            return here ? four.v[j] : from_float<T>(0.0F);
          });
      }
#pragma unroll
      for (int m = 0; m < Numbers::kRows; ++m) {
        uint32_t a[4];
        numbers.gather(
            m,
            [&](int pixel) {
              const int window = begin + pixel / 4, line = pixel % 4 / 2, column = 2 * window + pixel % 2;
              return lines + line * s.sh * p.pitch + column * shift;
            },
            a);
#pragma unroll
        for (int j = 0; j < kFewChannelTiles; ++j) multiply<T>(c[m][j], a, b[j]);
      }
    }
  }
  write_part<kNumbers>(
      c, [](int tile, int column) { return column * kFewChannelTiles + tile; },
      min(kFewChannelOutputs, s.o - first_output), width, reinterpret_cast<float*>(shared),
      parts + (static_cast<int64_t>(blockIdx.x) * s.o + first_output) * width);
}

Segments segments_of(const PooledShape& p) {
  ImplicitGemmShape pooled = p.conv;
  pooled.oh = p.oh, pooled.ow = p.ow;
  return Segments(pooled, kPooledPixels);
}

}  // namespace

void launch_pooled_forward(const PooledShape& p, Element element, const void* x, const void* w, const void* bias,
                           bool relu, void* y, uint8_t* index, int multiprocessors, cudaStream_t stream) {
  const Segments segments = segments_of(p);
  const int64_t blocks =
      std::clamp<int64_t>(kFewChannelBlocks * multiprocessors / few_channel_output_blocks(p.conv), 1, segments.count);
  const dim3 grid(static_cast<unsigned>(blocks), few_channel_output_blocks(p.conv));
  with_element(element, [&]<typename T>() {
    with_numbers(p.conv.numbers, [&]<int kNumbers>() {
      pooled_forward<T, kNumbers><<<grid, kFewChannelThreads, p.shared, stream>>>(
          p, segments, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), relu,
          static_cast<T*>(y), index);
    });
  });
  check_launch();
}

void launch_pooled_weight_grad(const PooledShape& p, Element element, const void* x, const void* dy,
                               const uint8_t* index, bool one, int width, int64_t count, float* parts,
                               cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(count), few_channel_output_blocks(p.conv));
  with_element(element, [&]<typename T>() {
    with_numbers(p.conv.numbers + (one ? 1 : 0), [&]<int kNumbers>() {
      pooled_weight_grad<T, kNumbers><<<grid, kFewChannelThreads, p.shared, stream>>>(
          p, segments_of(p), static_cast<const T*>(x), static_cast<const T*>(dy), index, one, width, parts);
    });
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
