#include "backends/cuda/runtime/straight.h"

#include <algorithm>

#include "backends/cuda/runtime/matrix.cuh"
#include "backends/cuda/runtime/stretches.cuh"

namespace plimsoll::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kPixels = 128;                              // of a stretch
constexpr int kOutputs = 32, kTiles = kOutputs / kGroup;  // of a block
constexpr int kRow = kOutputs + 8;  // of gradients in shared memory: the rest spreads the rows over the banks
constexpr int kMostNumbers = 64;
constexpr int kMostShared = 48 * 1024;
// Blocks that a processor has in hand at once: most of a block's time is waiting for the lines it asked for.
constexpr int kBlocks = 6;
template <int kNumbers>
constexpr int kResident = kNumbers <= 32 ? kBlocks : kBlocks / 2;

// Columns of the image under a stretch; one more line of them lies `pitch` numbers on.
__host__ __device__ inline int pitch_of(const StraightShape& s) {
  return ((kPixels - 1) * s.sw + (s.kw - 1) * s.dw + 1) * s.c;
}

// The lines under a stretch of output pixels, zeros where they leave the image; a warp takes a line. There is always
// something to read, so that no read waits for another.
template <typename T>
__device__ void load_lines(const StraightShape& s, const Stretch& at, const T* x, T* lines) {
  constexpr int kAtOnce = 8;
  const int pitch = pitch_of(s), from = (at.first * s.sw - s.left) * s.c, width = s.w * s.c;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < s.kh; i += kWarps) {
    const int row = at.line * s.sh - s.top + i * s.dh;
    const bool inside = row >= 0 && row < s.h;
    const T* line = x + (at.image * s.h + (inside ? row : 0)) * width;
    for (int begin = static_cast<int>(threadIdx.x) % kWarp; begin < pitch; begin += kAtOnce * kWarp) {
      T values[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) values[u] = line[min(max(from + begin + u * kWarp, 0), width - 1)];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int k = begin + u * kWarp, column = from + k;
        const bool there = inside && column >= 0 && column < width;
        if (k < pitch) lines[i * pitch + k] = there ? values[u] : from_float<T>(0.0F);
      }
    }
  }
}

// Where number k lies in the lines, seen from a pixel's first.
__device__ inline int place_of(const StraightShape& s, int k) {
  const int tap = k / s.c;
  return tap / s.kw * pitch_of(s) + tap % s.kw * s.dw * s.c + k % s.c;
}

// A lane's numbers of tile j are those of neighbouring outputs in tiles 2j and 2j + 1, four in a row: a group of four
// lanes then writes 16 outputs side by side.
__device__ inline int output_of(int tile, int column) {
  return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

template <typename T, int kNumbers>
__global__ void __launch_bounds__(kThreads, kResident<kNumbers>)
    straight_forward(StraightShape s, Stretches stretches, const T* __restrict__ x, const T* __restrict__ w,
                     const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  using M = Matrix<T>;
  constexpr int kSteps = kNumbers / M::kStep, kHeld = M::kStep / 4;  // numbers a lane holds of a row of a step
  extern __shared__ char shared[];
  T* const lines = reinterpret_cast<T*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, first_output = static_cast<int>(blockIdx.y) * kOutputs;
  const int numbers = s.numbers, shift = s.sw * s.c;
  uint32_t b[kSteps][kTiles][2];
  int place[kSteps][kHeld];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int output = first_output + output_of(j, g);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        b[step][j][r] = M::along(t, r, [&](int k) {
          const int number = step * M::kStep + k;
          return output < s.o && number < numbers ? w[static_cast<int64_t>(output) * numbers + number]
                                                  : from_float<T>(0.0F);
        });
    }
#pragma unroll
    for (int q = 0; q < kHeld; ++q) {  // in the order along() asks for them
      const int k = step * M::kStep + (kHeld == 4 ? 2 * t + q % 2 + q / 2 * 8 : t + 4 * q);
      place[step][q] = k < numbers ? place_of(s, k) : -1;
    }
  }
  float add[kTiles][2] = {};
  if (bias != nullptr)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (const int output = first_output + output_of(j, 2 * t + e); output < s.o) add[j][e] = to_float(bias[output]);

  for (int i = static_cast<int>(blockIdx.x); i < stretches.count; i += static_cast<int>(gridDim.x)) {
    const Stretch at = stretches.at(i, s.oh);
    __syncthreads();
    load_lines(s, at, x, lines);
    __syncthreads();
    const int count = min(kPixels, s.ow - at.first);
    T* const to = y + ((at.image * s.oh + at.line) * s.ow + at.first) * s.o + first_output;
    for (int begin = warp * 16; begin < count; begin += kWarps * 16) {
      float c[kTiles][4];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q) c[j][q] = add[j][q % 2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const T* pixel = lines + (begin + g + q % 2 * 8) * shift;
          int held = q / 2 * kHeld / 2;
          a[q] = M::along(t, q / 2, [&](int) {
            const int from = place[step][held++];
            const T value = pixel[max(from, 0)];
            return from >= 0 ? value : from_float<T>(0.0F);
          });
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) multiply<T>(c[j], a, b[step][j]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = begin + g + half * 8;
        if (pixel >= count) continue;
#pragma unroll
        for (int pair = 0; pair < kTiles / 2; ++pair) {
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
  }
}

// The gradients of a stretch, kOutputs of each pixel, zeros behind the last pixel.
template <typename T>
__device__ void load_gradients(const StraightShape& s, const Stretch& at, int first_output, const T* dy, T* rows) {
  constexpr int kWide = kPack<T>, kPacks = kOutputs / kWide, kEach = kPixels * kPacks / kThreads;
  const int count = min(kPixels, s.ow - at.first), outputs = min(kOutputs, s.o - first_output);
  const T* from = dy + ((at.image * s.oh + at.line) * s.ow + at.first) * s.o + first_output;
  const auto there = [&](int pixel, int output) { return pixel < count && output < outputs; };
  if (s.o % kWide == 0) {
    Pack<T, kWide> packs[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int i = static_cast<int>(threadIdx.x) + u * kThreads, pixel = i / kPacks, output = i % kPacks * kWide;
      const int64_t at_pack = there(pixel, output) ? static_cast<int64_t>(pixel) * s.o + output : 0;
      packs[u] = *reinterpret_cast<const Pack<T, kWide>*>(from + at_pack);
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int i = static_cast<int>(threadIdx.x) + u * kThreads, pixel = i / kPacks, output = i % kPacks * kWide;
      *reinterpret_cast<Pack<T, kWide>*>(rows + pixel * kRow + output) =
          there(pixel, output) ? packs[u] : Pack<T, kWide>{};
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kPixels * kOutputs; i += kThreads) {
    const int pixel = i / kOutputs, output = i % kOutputs;
    rows[pixel * kRow + output] =
        there(pixel, output) ? from[static_cast<int64_t>(pixel) * s.o + output] : from_float<T>(0.0F);
  }
}

// Of the gradients of one step's pixels, the fragments of all tiles.
template <typename T>
__device__ void gradient_fragments(const T* rows, int lane, uint32_t (&b)[kTiles][2]) {
  const int g = lane / 4, t = lane % 4;
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        b[j][r] = Matrix<T>::along(t, r, [&](int k) { return rows[k * kRow + j * kGroup + g]; });
  } else {
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      // The pixels' halves of two tiles.
      load_transposed(rows + (lane % 16) * kRow + (j + lane / 16) * kGroup, b[j][0], b[j][1], b[j + 1][0], b[j + 1][1]);
    }
  }
}

template <typename T, int kNumbers>
__global__ void __launch_bounds__(kThreads, kResident<kNumbers>)
    straight_weight_grad(StraightShape s, Stretches stretches, const T* __restrict__ x, const T* __restrict__ dy,
                         bool one, int width, float* __restrict__ parts) {
  using M = Matrix<T>;
  constexpr int kRows = kNumbers / 16;  // tiles of numbers
  extern __shared__ char shared[];
  T *const gradients = reinterpret_cast<T*>(shared), *const lines = gradients + kPixels * kRow;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, first_output = static_cast<int>(blockIdx.y) * kOutputs;
  const int numbers = s.numbers, shift = s.sw * s.c;
  int place[kRows][2];
  T otherwise[kRows][2];
#pragma unroll
  for (int m = 0; m < kRows; ++m)
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int k = m * 16 + g + q * 8;
      place[m][q] = k < numbers ? place_of(s, k) : -1;
      otherwise[m][q] = from_float<T>(one && k == numbers ? 1.0F : 0.0F);
    }
  float c[kRows][kTiles][4] = {};
  for (int i = static_cast<int>(blockIdx.x); i < stretches.count; i += static_cast<int>(gridDim.x)) {
    const Stretch at = stretches.at(i, s.oh);
    __syncthreads();
    load_gradients(s, at, first_output, dy, gradients);
    load_lines(s, at, x, lines);
    __syncthreads();
    const int count = min(kPixels, s.ow - at.first);
    for (int begin = warp * M::kStep; begin < count; begin += kWarps * M::kStep) {
      uint32_t b[kTiles][2];
      gradient_fragments(gradients + begin * kRow, lane, b);
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        uint32_t a[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const int from = place[m][q % 2];
          a[q] = M::along(t, q / 2, [&](int pixel) {
            const T value = lines[max(from, 0) + (begin + pixel) * shift];
            return from >= 0 ? value : otherwise[m][q % 2];
          });
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) multiply<T>(c[m][j], a, b[j]);
      }
    }
  }
  // The warps' sums, one warp after the other; they lie where the lines and gradients were.
  float* const sums = reinterpret_cast<float*>(shared);
  for (int turn = 0; turn < kWarps; ++turn) {
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          float& sum = sums[(j * kGroup + 2 * t + q % 2) * kNumbers + m * 16 + g + q / 2 * 8];
          sum = turn == 0 ? c[m][j][q] : sum + c[m][j][q];
        }
  }
  __syncthreads();
  const int outputs = min(kOutputs, s.o - first_output);
  float* const to = parts + (static_cast<int64_t>(blockIdx.x) * s.o + first_output) * width;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * width; i += kThreads) {
    const int k = i % width;
    to[i] = k < kNumbers ? sums[i / width * kNumbers + k] : 0.0F;
  }
}

int shared_bytes(const StraightShape& s, Element element, bool weight_grad) {
  const int size = element == Element::kF32 ? 4 : 2;
  const int lines = s.kh * pitch_of(s) * size;
  if (!weight_grad) return lines;
  const int gradients = kPixels * kRow * size, sums = kOutputs * kMostNumbers * 4;
  return std::max(gradients + lines, sums);
}

unsigned output_blocks(const StraightShape& s) {
  return static_cast<unsigned>((s.o + kOutputs - 1) / kOutputs);
}

// As many as a card has in hand at once: each goes from stretch to stretch.
int64_t blocks_of(const StraightShape& s, int multiprocessors) {
  return std::clamp<int64_t>(kBlocks * multiprocessors / output_blocks(s), 1, Stretches(s, kPixels).count);
}

template <typename F>
void with_numbers(int numbers, F f) {
  if (numbers <= 32)
    f.template operator()<32>();
  else
    f.template operator()<kMostNumbers>();
}

}  // namespace

bool straight_takes(const StraightShape& shape, Element element, bool weight_grad) {
  return shape.numbers + (weight_grad ? 1 : 0) <= kMostNumbers &&
         shared_bytes(shape, element, weight_grad) <= kMostShared;
}

void launch_straight_forward(const StraightShape& shape, Element element, const void* x, const void* w,
                             const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks_of(shape, multiprocessors)), output_blocks(shape));
  const int shared = shared_bytes(shape, element, false);
  with_element(element, [&]<typename T>() {
    with_numbers(shape.numbers, [&]<int kNumbers>() {
      straight_forward<T, kNumbers><<<grid, kThreads, shared, stream>>>(
          shape, Stretches(shape, kPixels), static_cast<const T*>(x), static_cast<const T*>(w),
          static_cast<const T*>(bias), relu, static_cast<T*>(y));
    });
  });
  check_launch();
}

int64_t straight_parts(const StraightShape& shape, int multiprocessors) {
  return blocks_of(shape, multiprocessors);
}

void launch_straight_weight_grad(const StraightShape& shape, Element element, const void* x, const void* dy, bool one,
                                 int width, int64_t count, float* parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(count), output_blocks(shape));
  const int shared = shared_bytes(shape, element, true);
  with_element(element, [&]<typename T>() {
    with_numbers(shape.numbers + (one ? 1 : 0), [&]<int kNumbers>() {
      straight_weight_grad<T, kNumbers><<<grid, kThreads, shared, stream>>>(
          shape, Stretches(shape, kPixels), static_cast<const T*>(x), static_cast<const T*>(dy), one, width, parts);
    });
  });
  check_launch();
}

}  // namespace plimsoll::cuda
