// What the forward and the backward kernel of a loop share: the cell's functions, a barrier among the blocks of a
// group, and the product of a step.
//
// A lane reads 16 adjacent bytes of a row of the operand, and the same terms of a column of the weights. The tensor
// cores may add terms in any order, so these bytes are the fragments of two products: no operand passes through shared
// memory, and every byte of it is read once.
#pragma once

#include "backends/cuda/common/async_copy.cuh"
#include "backends/cuda/common/device.cuh"
#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/recurrent/launch.h"

namespace plimsoll::engine::cuda {

inline constexpr int kLoopThreads = 256, kLoopWarps = kLoopThreads / kWarp, kTile = 8;

template <typename T>
inline constexpr int kTerms = 16 / static_cast<int>(sizeof(T));  // per lane and k block
template <typename T>
inline constexpr int kBlockElements = kWarp* kTerms<T>;  // one tile of one k block of the packed weights

// Functions with the precision that the tensors have.
template <bool kFast>
__device__ inline float sigmoid_of(float x) {
  return kFast ? __fdividef(1.0F, 1.0F + __expf(-x)) : 1.0F / (1.0F + expf(-x));
}
template <bool kFast>
__device__ inline float tanh_of(float x) {
  return kFast ? 1.0F - __fdividef(2.0F, __expf(2.0F * x) + 1.0F) : tanhf(x);
}

template <bool kFast>
__device__ inline float value_of(CellFunction f, float x) {
  switch (f) {
    case CellFunction::kSigmoid:
      return sigmoid_of<kFast>(x);
    case CellFunction::kTanh:
      return tanh_of<kFast>(x);
    case CellFunction::kLinear:
      return x;
    case CellFunction::kRelu:
      return fmaxf(x, 0.0F);
    case CellFunction::kRelu6:
      return fminf(fmaxf(x, 0.0F), 6.0F);
    case CellFunction::kLeakyRelu:
      return x > 0 ? x : kLeakySlope * x;
    case CellFunction::kHardSigmoid:
      return fminf(fmaxf(x + 3.0F, 0.0F), 6.0F) / 6.0F;
    case CellFunction::kHardTanh:
      return fminf(fmaxf(x, -1.0F), 1.0F);
    case CellFunction::kSoftsign:
      return x / (1.0F + fabsf(x));
    case CellFunction::kSoftplus:
      return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x)));
    case CellFunction::kElu:
      return x > 0 ? x : expm1f(x);
    case CellFunction::kSelu:
      return kSeluScale * (x > 0 ? x : kSeluAlpha * expm1f(x));
    case CellFunction::kExponential:
      return expf(x);
  }
  return x;
}

// The slope where the function's value is y.
__device__ inline float slope_at(CellFunction f, float y) {
  switch (f) {
    case CellFunction::kSigmoid:
      return y * (1.0F - y);
    case CellFunction::kTanh:
      return 1.0F - y * y;
    case CellFunction::kLinear:
      return 1;
    case CellFunction::kRelu:
      return y > 0 ? 1 : 0;
    case CellFunction::kRelu6:
      return y > 0 && y < 6 ? 1 : 0;
    case CellFunction::kLeakyRelu:
      return y > 0 ? 1 : kLeakySlope;
    case CellFunction::kHardSigmoid:
      return y > 0 && y < 1 ? 1.0F / 6.0F : 0;
    case CellFunction::kHardTanh:
      return y > -1 && y < 1 ? 1 : 0;
    case CellFunction::kSoftsign:
      return (1.0F - fabsf(y)) * (1.0F - fabsf(y));
    case CellFunction::kSoftplus:
      return -expm1f(-y);
    case CellFunction::kElu:
      return y > 0 ? 1 : y + 1.0F;
    case CellFunction::kSelu:
      return y > 0 ? kSeluScale : y + kSeluScale * kSeluAlpha;
    case CellFunction::kExponential:
      return y;
  }
  return 1;
}

__device__ inline uint32_t as_tf32(uint32_t bits) {
  uint32_t word;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(bits)));
#else
  word = bits;
#endif
  return word;
}

__device__ inline int input_step(const LoopShape& s, int step) {
  return s.reverse ? s.t - 1 - step : step;
}
__device__ inline int output_step(const LoopShape& s, int step) {
  return s.reverse && s.keeps_order ? s.t - 1 - step : step;
}
template <typename T>
__device__ inline bool is_unmasked(const LoopShape& s, int n, int step) {
  return s.mask == nullptr ||
         to_float(static_cast<const T*>(s.mask)[static_cast<int64_t>(n) * s.t + input_step(s, step)]) > 0.5F;
}
// The factor of a state's dropout.
template <typename T>
__device__ inline float state_factor(const LoopShape& s, int n, int gate, int j) {
  if (s.h_masks == 0) return 1;
  const int64_t mask = static_cast<int64_t>(n) * s.h_masks + (s.h_masks == 1 ? 0 : gate);
  return to_float(static_cast<const T*>(s.h_mask)[mask * s.u + j]);
}

// The state after a step. Before the record begins, it is in a tensor of its own.
template <typename T>
__device__ inline float recorded_state(const LoopShape& s, const LoopRecord& record, int n, int j, int step) {
  if (step < record.begin || (record.is_output && step < s.first[n]))
    return to_float(static_cast<const T*>(record.start_h)[n * record.start_row + j]);
  const int at = record.is_output ? output_step(s, step) : step - record.begin;
  return to_float(static_cast<const T*>(record.states)[(static_cast<int64_t>(n) * record.steps + at) * s.u + j]);
}

// A barrier among `count` blocks, in two parts, so that a block can load ahead in between. What a block wrote before it
// arrived, others read from the L2 cache (__ldcg) after they have waited.
__device__ inline void arrive(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}
__device__ inline void wait_for(const unsigned* counter, unsigned count) {
  if (threadIdx.x == 0) {
    unsigned seen = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < count);
    __threadfence();
  }
  __syncthreads();
}

// Warps of a block: some share the rows of a tile, the others the terms of the sums.
template <bool kMatrix, int kRows>
struct WarpLayout {
  static constexpr int kRowParts = kRows > 32 ? 2 : 1;
  static constexpr int kSumParts = kLoopWarps / kRowParts;
  static constexpr int kTiles = kRows / 16 / kRowParts;  // row tiles of 16 per warp
};

// Where the weights of k blocks and column tiles are.
template <typename T>
struct Weights {
  const T* first;
  int64_t k_stride, tile_stride;  // elements
};

// sums += operand * weights for k blocks [begin, end) of `step` each and kCount column tiles from kFirst on. `a` is the
// row of the warp's first tile; rows of dead tiles are not read.
template <typename T, bool kMatrix, int kTiles, int kColumns, int kFirst, int kCount>
__device__ inline void step_product(float (&sums)[kTiles][kColumns][4], const T* a, int64_t row, int live,
                                    const Weights<T>& w, int begin, int end, int step) {
  constexpr int kP = kTerms<T>, kBlock = 4 * kP;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / 4, t = lane % 4;
  if constexpr (kMatrix) {
    constexpr int kAhead = 8;  // k blocks in flight
    const T* const own = a + group * row + t * kP;
    for (int first = begin; first < end; first += step * kAhead) {
      uint4 x[kAhead][kTiles][2];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int k = first + i * step;
            x[i][m][half] = k < end && m < live
                                ? __ldcg(reinterpret_cast<const uint4*>(own + (16 * m + 8 * half) * row +
                                                                        static_cast<int64_t>(k) * kBlock))
                                : uint4{0, 0, 0, 0};
          }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int k = first + i * step;
        if (k >= end) break;
#pragma unroll
        for (int n = kFirst; n < kFirst + kCount; ++n) {
          const uint4 b =
              *reinterpret_cast<const uint4*>(w.first + k * w.k_stride + (n - kFirst) * w.tile_stride + lane * kP);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            if (m >= live) continue;
            const uint4 low = x[i][m][0], high = x[i][m][1];
            if constexpr (sizeof(T) == 4) {
              multiply<T>(sums[m][n], {as_tf32(low.x), as_tf32(high.x), as_tf32(low.y), as_tf32(high.y)}, {b.x, b.y});
              multiply<T>(sums[m][n], {as_tf32(low.z), as_tf32(high.z), as_tf32(low.w), as_tf32(high.w)}, {b.z, b.w});
            } else {
              multiply<T>(sums[m][n], {low.x, high.x, low.y, high.y}, {b.x, b.y});
              multiply<T>(sums[m][n], {low.z, high.z, low.w, high.w}, {b.z, b.w});
            }
          }
        }
      }
    }
  } else {
    for (int k = begin; k < end; k += step)
      for (int part = 0; part < 4; ++part) {
        Pack<T, kP> rows[2 * kTiles];
#pragma unroll
        for (int m = 0; m < 2 * kTiles; ++m) {
          uint4 word = {0, 0, 0, 0};
          if (m / 2 < live)
            word = __ldcg(reinterpret_cast<const uint4*>(a + (group + 8 * m) * row + static_cast<int64_t>(k) * kBlock +
                                                         part * kP));
          memcpy(rows[m].v, &word, 16);
        }
#pragma unroll
        for (int n = kFirst; n < kFirst + kCount; ++n) {
          const T* const columns = w.first + k * w.k_stride + (n - kFirst) * w.tile_stride;
          const Pack<T, kP> one = load_pack<kP>(columns + (8 * t + part) * kP),
                            two = load_pack<kP>(columns + (8 * t + 4 + part) * kP);
#pragma unroll
          for (int e = 0; e < kP; ++e)
#pragma unroll
            for (int m = 0; m < 2 * kTiles; ++m) {
              const float value = to_float(rows[m].v[e]);
              sums[m / 2][n][m % 2 * 2] += value * to_float(one.v[e]);
              sums[m / 2][n][m % 2 * 2 + 1] += value * to_float(two.v[e]);
            }
        }
      }
  }
}

// Elements from one row to the next in the partial sums of the warps; the padding avoids bank conflicts.
template <int kColumns>
inline constexpr int kPitch = kColumns* kTile + (kColumns % 2 == 0 ? kTile : 0);

// Writes the sums of a warp to shared memory.
template <int kTiles, int kColumns, int kFirst, int kCount>
__device__ inline void store_sums(const float (&sums)[kTiles][kColumns][4], float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int n = kFirst; n < kFirst + kCount; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 pair;
        pair.x = sums[m][n][2 * half];
        pair.y = sums[m][n][2 * half + 1];
        *reinterpret_cast<float2*>(to + (16 * m + 8 * half + group) * kPitch<kColumns> + n * kTile + 2 * t) = pair;
      }
}

// The sum of all warps for one row and column.
template <int kSumParts, int kRows, int kColumns>
__device__ inline float add_sums(const float* from, int row, int column) {
  float sum = 0;
#pragma unroll
  for (int part = 0; part < kSumParts; ++part) sum += from[(part * kRows + row) * kPitch<kColumns> + column];
  return sum;
}

// Calls f.operator()<T, kMatrix, kRows>() for the element type, the use of tensor cores and the rows per tile.
template <typename F>
void with_loop(const LoopShape& s, F f) {
  const bool large = s.row_tile > 16;
  with_element(s.element, [&]<typename T>() {
    if (!s.matrix) {
      if constexpr (!std::is_same_v<T, __nv_bfloat16>) f.template operator()<T, false, 16>();
    } else if (large) {
      f.template operator()<T, true, 64>();
    } else {
      f.template operator()<T, true, 16>();
    }
  });
}

// Launches a kernel whose blocks wait for each other: they must all be on the card at the same time.
template <typename Kernel, typename Arguments>
void launch_together(Kernel kernel, const LoopShape& s, Arguments arguments, cudaStream_t stream) {
  allow_most_shared(kernel);
  void* list[] = {&arguments};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                              dim3(static_cast<unsigned>(s.blocks), static_cast<unsigned>(s.groups)),
                              dim3(kLoopThreads), list, static_cast<size_t>(s.shared_bytes), stream);
}

}  // namespace plimsoll::engine::cuda
