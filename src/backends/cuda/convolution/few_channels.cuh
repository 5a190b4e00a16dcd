// What the own convolutions over few channels share. A block has some lines of the image in shared memory; what lies
// under the kernel is gathered from there and multiplied on the matrix units.
#pragma once

#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/kernel_limits.h"

namespace plimsoll::engine::cuda {

inline constexpr int kFewChannelThreads = 128, kFewChannelWarps = kFewChannelThreads / kWarp;
inline constexpr int kFewChannelTiles = kFewChannelOutputs / kGroup;
// Blocks of a kernel over so many numbers that a processor has in hand.
template <int kNumbers>
inline constexpr int kFewChannelResident = kNumbers <= 32 ? kFewChannelBlocks : kFewChannelBlocks / 2;

// `count` lines, `step` rows of the image apart, `pitch` numbers apart in shared memory.
struct Lines {
  int count, step, pitch;
};

// Numbers of a line that lie under `pixels` pixels side by side. What lies behind them is read for pixels that are not
// there, whose gradients are zero: it must be zero as well, because infinity times zero is not.
__device__ inline int numbers_under(const ImplicitGemmShape& s, int pixels) {
  return ((pixels - 1) * s.sw + (s.kw - 1) * s.dw + 1) * s.c;
}

// The lines from (row, column) of an image, `reach` numbers of each, zeros behind them and where they leave the image;
// a warp takes a line. There is always something to read, so that no read waits for another.
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

// Where number k under the kernel lies, seen from a pixel's first. Lines are one row of the image or one tap apart.
__device__ inline int place_of(const ImplicitGemmShape& s, const Lines& lines, int k) {
  const int tap = k / s.c;
  return tap / s.kw * (s.dh / lines.step) * lines.pitch + tap % s.kw * s.dw * s.c + k % s.c;
}

// The output of a tile's column in the forward pass: a lane's numbers of tiles 2j and 2j + 1 are those of four outputs
// in a row, so that a group of four lanes writes 16 outputs side by side.
__device__ inline int forward_output(int tile, int column) {
  return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

// A lane's share of a block's bias: where its sums begin.
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

// A lane's share of a block's weights and bias, kept while the block goes from stretch to stretch.
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
      for (int q = 0; q < kHeld; ++q) {  // in the order along() asks for them
        const int k = step * M::kStep + (kHeld == 4 ? 2 * t + q % 2 + q / 2 * 8 : t + 4 * q);
        place_[step][q] = k < s.numbers ? place_of(s, lines, k) : -1;
      }
    }
  }

  // c = the outputs of 16 pixels; of this lane's group those whose first numbers are at `upper` and `lower`.
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
  static constexpr int kSteps = kNumbers / M::kStep, kHeld = M::kStep / 4;  // numbers a lane holds of a row of a step

  uint32_t b_[kSteps][kFewChannelTiles][2];
  int place_[kSteps][kHeld];
  FewChannelBias<T> bias_;
};

// The outputs of a tile's 16 pixels, of which `left` are there; `to` is the first output of the first.
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

// Where the numbers of a lane's rows of the weight gradient lie, and what stands for those behind the last.
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

  // Fragment of tile m of the numbers under a step's pixels; pixel(k) is the first number under pixel k.
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

// A block's part of the weight gradient, [outputs, width]: the warps' sums c, one warp after the other, in shared
// memory that nothing else is read from any more. output(tile, column) is the output of a tile's column.
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

// f.operator()<kNumbers>(): for as many numbers at least.
template <typename F>
void with_numbers(int numbers, F f) {
  if (numbers <= 32)
    f.template operator()<32>();
  else
    f.template operator()<kFewChannelNumbers>();
}

}  // namespace plimsoll::engine::cuda
