// Per-tap weight gradient of a convolution over 16, 32 or 64 input channels, with 2 to 9 kernel taps. For each tap it
// is the GEMM dw[tap] = x^T dy over all output pixels. A block loads the image rows under a segment of output pixels
// and the segment's dy into shared memory (double buffered), and each warp multiplies the pixels of one tap with dy.
// Blocks split the pixels (split-K) and write float32 partial sums, which the caller adds up; the bias gradient is left
// to the caller too. x and dy are NHWC, dw is [o, kh, kw, c]. The output channels of a pixel must be a multiple of 16
// bytes, the size of one asynchronous copy, and two segments must fit into shared memory. cuDNN's kernels leave most of
// the tensor cores idle for so few channels. float32 inputs are truncated to tf32 by the tensor cores: rounding them
// first cost a tenth of the time on an H200.
#include <algorithm>

#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/convolution/row_segments.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kPixels = 64;  // output pixels per segment
constexpr int kMostTaps = 9;
// Padding elements per pixel in shared memory that avoid bank conflicts. float32 gradients need more, because they are
// read two at a time.
constexpr int kSpread = 8;
__host__ __device__ constexpr int gradient_spread(int size) {
  return size == 4 ? 16 : 8;
}
constexpr int kBlocks = 2;  // blocks per multiprocessor

// Output channels per block. For one tap, each warp accumulates a tile of these output channels by all input channels,
// as large as its registers allow.
template <int kChannels>
constexpr int kOutputs = kChannels == 64 ? 32 : 64;

__host__ __device__ inline int columns_of(const ImplicitGemmShape& s) {
  return (kPixels - 1) * s.sw + (s.kw - 1) * s.dw + 1;
}

// The A fragment of 16 input channels for the pixels of one k step, `pitch` elements apart.
template <typename T>
__device__ void channel_fragments(const T* pixels, int pitch, int lane, uint32_t (&a)[4]) {
  if constexpr (std::is_same_v<T, float>) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) a[q] = __float_as_uint(pixels[(t + q / 2 * 4) * pitch + g + q % 2 * 8]);
  } else {
    load_transposed(pixels + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8, a[0], a[1], a[2], a[3]);
  }
}

// The B fragments of 16 output channels, as two tiles. In float32 the even channels form one tile and the odd channels
// the other.
template <typename T>
__device__ void output_fragments(const T* pixels, int pitch, int lane, uint32_t (&b)[2], uint32_t (&next)[2]) {
  if constexpr (std::is_same_v<T, float>) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto two = *reinterpret_cast<const uint2*>(pixels + (t + 4 * r) * pitch + 2 * g);
      b[r] = two.x;
      next[r] = two.y;
    }
  } else {
    load_transposed(pixels + lane % 16 * pitch + lane / 16 * kGroup, b[0], b[1], next[0], next[1]);
  }
}
template <typename T>
__device__ int output_of(int tile, int column) {
  return std::is_same_v<T, float> ? tile / 2 * 16 + 2 * column + tile % 2 : tile * kGroup + column;
}

// Elements in shared memory for one segment.
__host__ __device__ inline int numbers_held(const ImplicitGemmShape& s, int size) {
  const int outputs = s.c == 64 ? kOutputs<64> : kOutputs<32>;
  return kPixels * (outputs + gradient_spread(size)) + s.kh * columns_of(s) * (s.c + kSpread);
}

template <typename T, int kChannels>
__global__ void __launch_bounds__(kMostTaps* kWarp, kBlocks)
    per_tap_weight_grad(ImplicitGemmShape s, Segments segments, const T* __restrict__ x, const T* __restrict__ dy,
                        float* __restrict__ parts) {
  constexpr int kWide = kPack<T>, kRows = kChannels / 16, kTiles = kOutputs<kChannels> / kGroup;
  constexpr int kPitch = kChannels + kSpread, kRow = kOutputs<kChannels> + gradient_spread(sizeof(T));
  constexpr int kStep = Matrix<T>::kStep;
  constexpr int kPacksOfPixel = kChannels / kWide;
  extern __shared__ char shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, tap = static_cast<int>(threadIdx.x) / kWarp;
  const int threads = static_cast<int>(blockDim.x);
  const int first_output = static_cast<int>(blockIdx.y) * kOutputs<kChannels>, columns = columns_of(s);
  const int outputs = min(kOutputs<kChannels>, s.o - first_output);
  T* const space = reinterpret_cast<T*>(shared);
  const auto start = [&](int i, T* into) {
    const Segment at = segments.at(i, s.oh);
    const int count = min(kPixels, s.ow - at.first);
    start_gradients<kPixels, kOutputs<kChannels>, kRow>(s, at, count, first_output, threads, dy, into);
    // Columns after those of existing pixels are zero-filled, because infinity times a zero gradient is NaN.
    const int first_column = at.first * s.sw - s.left, read = (count - 1) * s.sw + (s.kw - 1) * s.dw + 1;
    for (int line = 0; line < s.kh; ++line) {
      const int row = at.line * s.sh - s.top + line * s.dh;
      const T* const pixels = x + ((at.image * s.h + row) * s.w + first_column) * kChannels;
      T* const to = into + kPixels * kRow + line * columns * kPitch;
      for (int k = static_cast<int>(threadIdx.x); k < columns * kPacksOfPixel; k += threads) {
        const int column = first_column + k / kPacksOfPixel;
        const bool there = row >= 0 && row < s.h && column >= 0 && column < s.w && k / kPacksOfPixel < read;
        copy_pack(to + k / kPacksOfPixel * kPitch + k % kPacksOfPixel * kWide, there ? pixels + k * kWide : x,
                  there ? 16 : 0);
      }
    }
  };
  float c[kRows][kTiles][4] = {};
  for_each_segment(segments, space, space + numbers_held(s, sizeof(T)), start, [&](int i, const T* gradients) {
    const T* const mine = gradients + kPixels * kRow + (tap / s.kw * columns + tap % s.kw * s.dw) * kPitch;
    const int count = min(kPixels, s.ow - segments.at(i, s.oh).first);
    for (int begin = 0; begin < count; begin += kStep) {
      uint32_t a[kRows][4];
#pragma unroll
      for (int m = 0; m < kRows; ++m)
        channel_fragments(mine + begin * s.sw * kPitch + m * 16, s.sw * kPitch, lane, a[m]);
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        uint32_t b[2][2];
        output_fragments(gradients + begin * kRow + j * kGroup, kRow, lane, b[0], b[1]);
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          multiply<T>(c[m][j], a[m], b[0]);
          multiply<T>(c[m][j + 1], a[m], b[1]);
        }
      }
    }
  });
  const int g = lane / 4, t = lane % 4;
  float* const to = parts + (static_cast<int64_t>(blockIdx.x) * s.o + first_output) * s.numbers + tap * kChannels;
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int output = output_of<T>(j, 2 * t + q % 2);
        if (output < outputs) to[static_cast<int64_t>(output) * s.numbers + m * 16 + g + q / 2 * 8] = c[m][j][q];
      }
}

int shared_bytes(const ImplicitGemmShape& s, Element element) {
  const int size = element == Element::kF32 ? 4 : 2;
  return 2 * numbers_held(s, size) * size;
}

unsigned output_blocks(const ImplicitGemmShape& s) {
  const int outputs = s.c == 64 ? kOutputs<64> : kOutputs<32>;
  return static_cast<unsigned>((s.o + outputs - 1) / outputs);
}

}  // namespace

bool per_tap_takes(const ImplicitGemmShape& shape, Element element) {
  const int wide = element == Element::kF32 ? 4 : 8;
  return (shape.c == 16 || shape.c == 32 || shape.c == 64) && shape.o % wide == 0 && shape.kh * shape.kw > 1 &&
         shape.kh * shape.kw <= kMostTaps && shared_bytes(shape, element) <= most_shared();
}

int64_t per_tap_parts(const ImplicitGemmShape& shape, int multiprocessors) {
  return std::clamp<int64_t>(kBlocks * multiprocessors / output_blocks(shape), 1, Segments(shape, kPixels).count);
}

void launch_per_tap_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                int64_t count, float* parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(count), output_blocks(shape));
  const auto threads = static_cast<unsigned>(shape.kh * shape.kw * kWarp);
  const int shared = shared_bytes(shape, element);
  with_element(element, [&]<typename T>() {
    const auto launch = [&](auto kernel) {
      allow_most_shared(kernel);
      kernel<<<grid, threads, shared, stream>>>(shape, Segments(shape, kPixels), static_cast<const T*>(x),
                                                static_cast<const T*>(dy), parts);
    };
    if (shape.c == 16) launch(per_tap_weight_grad<T, 16>);
    if (shape.c == 32) launch(per_tap_weight_grad<T, 32>);
    if (shape.c == 64) launch(per_tap_weight_grad<T, 64>);
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
