// Shared code of our convolutions over few input channels. They are implicit GEMMs: a block loads some image rows into
// shared memory, gathers the im2col rows from there into mma fragments (common/mma.cuh) and multiplies on the tensor
// cores. Naming: "lines" are image rows in shared memory; "numbers" are the kh * kw * c elements of an im2col row,
// ordered (tap, channel); kNumbers is that count rounded up.
#pragma once

#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/kernel_limits.h"

namespace plimsoll::engine::cuda {

inline constexpr int kFewChannelThreads = 128, kFewChannelWarps = kFewChannelThreads / kWarp;
inline constexpr int kFewChannelTiles = kFewChannelOutputs / kGroup;
// Blocks per multiprocessor of a kernel with im2col rows of kNumbers elements.
template <int kNumbers>
inline constexpr int kFewChannelResident = kNumbers <= 32 ? kFewChannelBlocks : kFewChannelBlocks / 2;

// `count` image rows, `step` rows apart in the image, with a row pitch of `pitch` elements in shared memory.
struct Lines {
  int count, step, pitch;
};

// The number of elements of an image row that `pixels` adjacent output pixels read. Shared memory after them must be
// zero-filled: it is read for output pixels beyond the edge, whose gradients are zero, but infinity times zero is NaN.
__device__ inline int numbers_under(const ImplicitGemmShape& s, int pixels) {
  return ((pixels - 1) * s.sw + (s.kw - 1) * s.dw + 1) * s.c;
}

// Loads image rows from (row, column) on, `reach` elements of each; the rest, and everything outside the image, becomes
// zero. Each warp loads whole rows. Loads outside the image are clamped to a valid address, so that all loads are
// independent of each other.
template <typename T>
__device__ void load_lines(const ImplicitGemmShape& s, const Lines& lines, int64_t image, int row, int column,
                           int reach, const T* x, T* to) {
  constexpr int kAtOnce = 8;
  const int from = column * s.c, width = s.w * s.c;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < lines.count; i += kFewChannelWarps) {
    const int at = row + i * lines.step;
    const bool inside = at >= 0 && at < s.h;
    const T* line = x + (image * s.h + (inside ? at : 0)) * width;
    for (int begin = static_cast<int>(threadIdx.x) % kWarp; begin < lines.pitch; begin += kAtOnce * kWarp) {
      T values[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) values[u] = line[min(max(from + begin + u * kWarp, 0), width - 1)];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int k = begin + u * kWarp, number = from + k;
        const bool there = inside && number >= 0 && number < width && k < reach;
        if (k < lines.pitch) to[i * lines.pitch + k] = there ? values[u] : from_float<T>(0.0F);
      }
    }
  }
}

// The offset of element k of an im2col row from the first element of the pixel. The image rows in `lines` are one image
// row or one tap (dh rows) apart.
__device__ inline int place_of(const ImplicitGemmShape& s, const Lines& lines, int k) {
  const int tap = k / s.c;
  return tap / s.kw * (s.dh / lines.step) * lines.pitch + tap % s.kw * s.dw * s.c + k % s.c;
}

// The output channel of a tile's column in the forward pass. The channels are permuted so that the values of one lane
// in tiles 2j and 2j + 1 are four consecutive channels, and a group of four lanes writes 16 consecutive channels.
__device__ inline int forward_output(int tile, int column) {
  return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

// The bias of the output channels of this lane, used to initialise its accumulators.
template <typename T>
class FewChannelBias {
 public:
  __device__ FewChannelBias(const ImplicitGemmShape& s, const T* bias, int first_output) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int j = 0; j < kFewChannelTiles; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int output = first_output + forward_output(j, 2 * t + e);
        add_[j][e] = bias != nullptr && output < s.o ? to_float(bias[output]) : 0.0F;
      }
  }

  __device__ void begin(float (&c)[kFewChannelTiles][4]) const {
#pragma unroll
    for (int j = 0; j < kFewChannelTiles; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) c[j][q] = add_[j][q % 2];
  }

 private:
  float add_[kFewChannelTiles][2];
};

// The weights (B fragments) and bias of this lane, kept in registers while the block runs over its segments.
template <typename T, int kNumbers>
class FewChannelWeights {
 public:
  __device__ FewChannelWeights(const ImplicitGemmShape& s, const Lines& lines, const T* w, const T* bias,
                               int first_output)
      : bias_(s, bias, first_output) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < kFewChannelTiles; ++j) {
        const int output = first_output + forward_output(j, g);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          b_[step][j][r] = M::along(t, r, [&](int k) {
            const int number = step * M::kStep + k;
            return output < s.o && number < s.numbers ? w[static_cast<int64_t>(output) * s.numbers + number]
                                                      : from_float<T>(0.0F);
          });
      }
#pragma unroll
      for (int q = 0; q < kHeld; ++q) {  // the elements k in the order in which along() visits them
        const int k = step * M::kStep + (kHeld == 4 ? 2 * t + q % 2 + q / 2 * 8 : t + 4 * q);
        place_[step][q] = k < s.numbers ? place_of(s, lines, k) : -1;
      }
    }
  }

  // c = the output channels of 16 pixels. `upper` and `lower` are the first elements of this lane group's two pixels
  // (rows g and g + 8 of the fragment).
  __device__ void multiply(const T* upper, const T* lower, float (&c)[kFewChannelTiles][4]) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
    bias_.begin(c);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        int held = q / 2 * kHeld / 2;
        a[q] = M::along(t, q / 2, [&](int) {
          const int from = place_[step][held++];
          const T value = (q % 2 == 0 ? upper : lower)[max(from, 0)];
          return from >= 0 ? value : from_float<T>(0.0F);
        });
      }
#pragma unroll
      for (int j = 0; j < kFewChannelTiles; ++j) cuda::multiply<T>(c[j], a, b_[step][j]);
    }
  }

 private:
  using M = Matrix<T>;
  // kHeld: elements per lane and fragment row in one k step.
  static constexpr int kSteps = kNumbers / M::kStep, kHeld = M::kStep / 4;

  uint32_t b_[kSteps][kFewChannelTiles][2];
  int place_[kSteps][kHeld];
  FewChannelBias<T> bias_;
};

// Stores the output channels of a tile's 16 pixels, of which the first `left` exist. `to` is the first pixel's first
// channel.
template <typename T>
__device__ void store_pixels(const ImplicitGemmShape& s, const float (&c)[kFewChannelTiles][4], bool relu,
                             int first_output, int left, T* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pixel = g + half * 8;
    if (pixel >= left) continue;
#pragma unroll
    for (int pair = 0; pair < kFewChannelTiles / 2; ++pair) {
      Pack<T, 4> four;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float v = c[pair * 2 + e / 2][half * 2 + e % 2];
        four.v[e] = from_float<T>(relu && v < 0 ? 0.0F : v);
      }
      const int output = pair * 16 + t * 4;
      T* const out = to + static_cast<int64_t>(pixel) * s.o + output;
      if (s.o % 4 == 0) {
        if (first_output + output < s.o) *reinterpret_cast<Pack<T, 4>*>(out) = four;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (first_output + output + e < s.o) out[e] = four.v[e];
      }
    }
  }
}

// For the weight gradient: the offsets of this lane's im2col elements, and the constants (1 for the bias, else 0) that
// replace elements after the last one.
template <typename T, int kNumbers>
class FewChannelNumbers {
 public:
  static constexpr int kRows = kNumbers / 16;

  __device__ FewChannelNumbers(const ImplicitGemmShape& s, const Lines& lines, bool one) {
    const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int k = m * 16 + g + q * 8;
        place_[m][q] = k < s.numbers ? place_of(s, lines, k) : -1;
        otherwise_[m][q] = from_float<T>(one && k == s.numbers ? 1.0F : 0.0F);
      }
  }

  // The A fragment of elements [16 m, 16 m + 16) over the pixels of one k step; pixel(k) is the first element of pixel
  // k.
  template <typename Pixel>
  __device__ void gather(int m, Pixel pixel, uint32_t (&a)[4]) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int from = place_[m][q % 2];
      a[q] = Matrix<T>::along(t, q / 2, [&](int k) {
        const T value = pixel(k)[max(from, 0)];
        return from >= 0 ? value : otherwise_[m][q % 2];
      });
    }
  }

 private:
  int place_[kRows][2];
  T otherwise_[kRows][2];
};

// Writes a block's partial weight gradient [outputs, width]. The warps add their accumulators c one after the other in
// shared memory, which must no longer be in use. output(tile, column) is the output channel of a tile's column.
template <int kNumbers, typename Output>
__device__ void write_part(const float (&c)[kNumbers / 16][kFewChannelTiles][4], Output output, int outputs, int width,
                           float* sums, float* part) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4;
  for (int turn = 0; turn < kFewChannelWarps; ++turn) {
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int m = 0; m < kNumbers / 16; ++m)
#pragma unroll
      for (int j = 0; j < kFewChannelTiles; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          float& sum = sums[output(j, 2 * t + q % 2) * kNumbers + m * 16 + g + q / 2 * 8];
          sum = turn == 0 ? c[m][j][q] : sum + c[m][j][q];
        }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < outputs * width; i += kFewChannelThreads) {
    const int k = i % width;
    part[i] = k < kNumbers ? sums[i / width * kNumbers + k] : 0.0F;
  }
}

inline unsigned few_channel_output_blocks(const ImplicitGemmShape& s) {
  return static_cast<unsigned>((s.o + kFewChannelOutputs - 1) / kFewChannelOutputs);
}

// Calls f.operator()<kNumbers>() with the smallest supported kNumbers >= numbers.
template <typename F>
void with_numbers(int numbers, F f) {
  if (numbers <= 32)
    f.template operator()<32>();
  else
    f.template operator()<kFewChannelNumbers>();
}

}  // namespace plimsoll::engine::cuda
