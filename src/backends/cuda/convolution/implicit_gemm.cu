// Implicit GEMM for convolutions over few input channels, in float32 (as tf32), f16 and bf16. Computes y =
// relu?(conv(x, w) + bias?) and partial sums of the weight gradient (split-K). x, y and dy are NHWC, w is [o, kh, kw,
// c]. An im2col row may have at most kFewChannelNumbers elements, because a warp keeps all of its weights in registers,
// and the image rows under a segment must fit into 48 KiB of shared memory. The caller adds up the partial sums.
#include "backends/cuda/convolution/implicit_gemm_launch.h"

#include <algorithm>

#include "backends/cuda/convolution/few_channels.cuh"
#include "backends/cuda/convolution/row_segments.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kPixels = 128;  // output pixels per segment
// Row pitch of dy in shared memory; the 8 extra elements avoid bank conflicts.
constexpr int kRow = kFewChannelOutputs + 8;
constexpr int kMostShared = 48 * 1024;

// The image rows under a segment of output pixels.
__host__ __device__ inline Lines lines_of(const ImplicitGemmShape& s) {
  return {s.kh, s.dh, ((kPixels - 1) * s.sw + (s.kw - 1) * s.dw + 1) * s.c};
}

template <typename T>
__device__ void load_segment(const ImplicitGemmShape& s, const Segment& at, const T* x, T* lines) {
  load_lines(s, lines_of(s), at.image, at.line * s.sh - s.top, at.first * s.sw - s.left,
             numbers_under(s, min(kPixels, s.ow - at.first)), x, lines);
}

template <typename T, int kNumbers>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelResident<kNumbers>)
    implicit_gemm_forward(ImplicitGemmShape s, Segments segments, const T* __restrict__ x, const T* __restrict__ w,
                          const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  extern __shared__ char shared[];
  T* const lines = reinterpret_cast<T*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, first_output = static_cast<int>(blockIdx.y) * kFewChannelOutputs, shift = s.sw * s.c;
  const FewChannelWeights<T, kNumbers> weights(s, lines_of(s), w, bias, first_output);
  for (int i = static_cast<int>(blockIdx.x); i < segments.count; i += static_cast<int>(gridDim.x)) {
    const Segment at = segments.at(i, s.oh);
    __syncthreads();
    load_segment(s, at, x, lines);
    __syncthreads();
    const int count = min(kPixels, s.ow - at.first);
    T* const to = y + ((at.image * s.oh + at.line) * s.ow + at.first) * s.o + first_output;
    for (int begin = warp * 16; begin < count; begin += kFewChannelWarps * 16) {
      const T* const pixel = lines + (begin + g) * shift;
      float c[kFewChannelTiles][4];
      weights.multiply(pixel, pixel + 8 * shift, c);
      store_pixels(s, c, relu, first_output, count - begin, to + static_cast<int64_t>(begin) * s.o);
    }
  }
}

// Loads dy of a segment, kFewChannelOutputs channels per pixel; zeros after the last pixel.
template <typename T>
__device__ void load_gradients(const ImplicitGemmShape& s, const Segment& at, int first_output, const T* dy, T* rows) {
  constexpr int kWide = kPack<T>, kPacks = kFewChannelOutputs / kWide, kEach = kPixels * kPacks / kFewChannelThreads;
  const int count = min(kPixels, s.ow - at.first), outputs = min(kFewChannelOutputs, s.o - first_output);
  const T* from = dy + ((at.image * s.oh + at.line) * s.ow + at.first) * s.o + first_output;
  const auto there = [&](int pixel, int output) { return pixel < count && output < outputs; };
  if (s.o % kWide == 0) {
    Pack<T, kWide> packs[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int i = static_cast<int>(threadIdx.x) + u * kFewChannelThreads, pixel = i / kPacks,
                output = i % kPacks * kWide;
      const int64_t at_pack = there(pixel, output) ? static_cast<int64_t>(pixel) * s.o + output : 0;
      packs[u] = *reinterpret_cast<const Pack<T, kWide>*>(from + at_pack);
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int i = static_cast<int>(threadIdx.x) + u * kFewChannelThreads, pixel = i / kPacks,
                output = i % kPacks * kWide;
      *reinterpret_cast<Pack<T, kWide>*>(rows + pixel * kRow + output) =
          there(pixel, output) ? packs[u] : Pack<T, kWide>{};
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kPixels * kFewChannelOutputs; i += kFewChannelThreads) {
    const int pixel = i / kFewChannelOutputs, output = i % kFewChannelOutputs;
    rows[pixel * kRow + output] =
        there(pixel, output) ? from[static_cast<int64_t>(pixel) * s.o + output] : from_float<T>(0.0F);
  }
}

// The B fragments of all tiles for the pixels of one k step.
template <typename T>
__device__ void gradient_fragments(const T* rows, int lane, uint32_t (&b)[kFewChannelTiles][2]) {
  const int g = lane / 4, t = lane % 4;
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int j = 0; j < kFewChannelTiles; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        b[j][r] = Matrix<T>::along(t, r, [&](int k) { return rows[k * kRow + j * kGroup + g]; });
  } else {
#pragma unroll
    for (int j = 0; j < kFewChannelTiles; j += 2) {
      // Both halves of the k step for two tiles.
      load_transposed(rows + (lane % 16) * kRow + (j + lane / 16) * kGroup, b[j][0], b[j][1], b[j + 1][0], b[j + 1][1]);
    }
  }
}

template <typename T, int kNumbers>
__global__ void __launch_bounds__(kFewChannelThreads, kFewChannelResident<kNumbers>)
    implicit_gemm_weight_grad(ImplicitGemmShape s, Segments segments, const T* __restrict__ x, const T* __restrict__ dy,
                              bool one, int width, float* __restrict__ parts) {
  using M = Matrix<T>;
  using Numbers = FewChannelNumbers<T, kNumbers>;
  extern __shared__ char shared[];
  T *const gradients = reinterpret_cast<T*>(shared), *const lines = gradients + kPixels * kRow;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_output = static_cast<int>(blockIdx.y) * kFewChannelOutputs, shift = s.sw * s.c;
  const Numbers numbers(s, lines_of(s), one);
  float c[Numbers::kRows][kFewChannelTiles][4] = {};
  for (int i = static_cast<int>(blockIdx.x); i < segments.count; i += static_cast<int>(gridDim.x)) {
    const Segment at = segments.at(i, s.oh);
    __syncthreads();
    load_gradients(s, at, first_output, dy, gradients);
    load_segment(s, at, x, lines);
    __syncthreads();
    const int count = min(kPixels, s.ow - at.first);
    for (int begin = warp * M::kStep; begin < count; begin += kFewChannelWarps * M::kStep) {
      uint32_t b[kFewChannelTiles][2];
      gradient_fragments(gradients + begin * kRow, lane, b);
#pragma unroll
      for (int m = 0; m < Numbers::kRows; ++m) {
        uint32_t a[4];
        numbers.gather(
            m, [&](int pixel) { return lines + (begin + pixel) * shift; }, a);
#pragma unroll
        for (int j = 0; j < kFewChannelTiles; ++j) multiply<T>(c[m][j], a, b[j]);
      }
    }
  }
  write_part<kNumbers>(
      c, [](int tile, int column) { return tile * kGroup + column; }, min(kFewChannelOutputs, s.o - first_output),
      width, reinterpret_cast<float*>(shared), parts + (static_cast<int64_t>(blockIdx.x) * s.o + first_output) * width);
}

int shared_bytes(const ImplicitGemmShape& s, Element element, bool weight_grad) {
  const int size = element == Element::kF32 ? 4 : 2;
  const int lines = s.kh * lines_of(s).pitch * size;
  if (!weight_grad) return lines;
  const int gradients = kPixels * kRow * size, sums = kFewChannelOutputs * kFewChannelNumbers * 4;
  return std::max(gradients + lines, sums);
}

// As many blocks as run on the card at once; each processes several segments.
int64_t blocks_of(const ImplicitGemmShape& s, int multiprocessors) {
  return std::clamp<int64_t>(kFewChannelBlocks * multiprocessors / few_channel_output_blocks(s), 1,
                             Segments(s, kPixels).count);
}

}  // namespace

bool implicit_gemm_takes(const ImplicitGemmShape& shape, Element element, bool weight_grad) {
  return shape.numbers + (weight_grad ? 1 : 0) <= kFewChannelNumbers &&
         shared_bytes(shape, element, weight_grad) <= kMostShared;
}

void launch_implicit_gemm_forward(const ImplicitGemmShape& shape, Element element, const void* x, const void* w,
                                  const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks_of(shape, multiprocessors)), few_channel_output_blocks(shape));
  const int shared = shared_bytes(shape, element, false);
  with_element(element, [&]<typename T>() {
    with_numbers(shape.numbers, [&]<int kNumbers>() {
      implicit_gemm_forward<T, kNumbers><<<grid, kFewChannelThreads, shared, stream>>>(
          shape, Segments(shape, kPixels), static_cast<const T*>(x), static_cast<const T*>(w),
          static_cast<const T*>(bias), relu, static_cast<T*>(y));
    });
  });
  check_launch();
}

int64_t implicit_gemm_parts(const ImplicitGemmShape& shape, int multiprocessors) {
  return blocks_of(shape, multiprocessors);
}

void launch_implicit_gemm_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                      bool one, int width, int64_t count, float* parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(count), few_channel_output_blocks(shape));
  const int shared = shared_bytes(shape, element, true);
  with_element(element, [&]<typename T>() {
    with_numbers(shape.numbers + (one ? 1 : 0), [&]<int kNumbers>() {
      implicit_gemm_weight_grad<T, kNumbers><<<grid, kFewChannelThreads, shared, stream>>>(
          shape, Segments(shape, kPixels), static_cast<const T*>(x), static_cast<const T*>(dy), one, width, parts);
    });
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
