// Sums over the middle axis of [outer, rows, columns]: a block sums a tile of columns over a chunk of rows. With
// several chunks, each writes its sums to the workspace, and the block that finishes last adds them up in order.
//
// An op computes kSums sums at once (`row` counts over all of outer x rows; `at` is outer * columns + column):
//   template <int N> __device__ void add(int64_t row, int64_t column, float (&sums)[kSums][N]) const;
//   __device__ void store(int sum, int64_t at, float value) const;
#pragma once

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/reduce/launch.h"

namespace plimsoll::engine::cuda {

// Whether this block is the last of `count` to arrive; the other blocks' writes are then visible to it.
__device__ inline bool is_last_block(unsigned* counter, unsigned count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1U) == count - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Adds up the sums of all slots of a block; the threads of slot 0 get the result.
template <int kSums, int N>
__device__ void join_slots(float (&sums)[kSums][N], float* shared, int lanes) {
  const int slot = static_cast<int>(threadIdx.x) / lanes;
  const auto at = [&](int s, int k, int thread) -> float& { return shared[(s * N + k) * kSumThreads + thread]; };
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int k = 0; k < N; ++k) at(s, k, static_cast<int>(threadIdx.x)) = sums[s][k];
  for (int half = kSumThreads / lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slot < half)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int k = 0; k < N; ++k)
          at(s, k, static_cast<int>(threadIdx.x)) += at(s, k, static_cast<int>(threadIdx.x) + half * lanes);
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int k = 0; k < N; ++k) sums[s][k] = at(s, k, static_cast<int>(threadIdx.x));
}

template <int N, typename Op>
__global__ void __launch_bounds__(kSumThreads)
    column_sums(ColumnSums plan, Op op, float* partials, unsigned* counters) {
  constexpr int kSums = Op::kSums;
  __shared__ float shared[kSums * N * kSumThreads];
  const int lane = static_cast<int>(threadIdx.x) % plan.lanes, slot = static_cast<int>(threadIdx.x) / plan.lanes;
  const int slots = kSumThreads / plan.lanes;
  int64_t block = blockIdx.x;
  const int64_t tile = block % plan.tiles;
  block /= plan.tiles;
  const int64_t chunk = block % plan.chunks, outer = block / plan.chunks;
  const int64_t column = (tile * plan.lanes + lane) * N;
  const bool inside = column < plan.columns;

  float sums[kSums][N] = {};
  if (inside) {
    const int64_t end = min((chunk + 1) * plan.chunk_rows, plan.rows);
#pragma unroll 4
    for (int64_t row = chunk * plan.chunk_rows + slot; row < end; row += slots)
      op.template add<N>(outer * plan.rows + row, column, sums);
  }
  join_slots(sums, shared, plan.lanes);
  if (plan.chunks == 1) {
    if (slot == 0 && inside)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int k = 0; k < N; ++k) op.store(s, outer * plan.columns + column + k, sums[s][k]);
    return;
  }
  // partials[outer][chunk][sum][column]
  float* mine = partials + (outer * plan.chunks + chunk) * kSums * plan.columns + column;
  if (slot == 0 && inside)
#pragma unroll
    for (int s = 0; s < kSums; ++s)
#pragma unroll
      for (int k = 0; k < N; ++k) mine[s * plan.columns + k] = sums[s][k];
  if (!is_last_block(counters + outer * plan.tiles + tile, static_cast<unsigned>(plan.chunks))) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int k = 0; k < N; ++k) sums[s][k] = 0;
  if (inside) {
    for (int64_t c = slot; c < plan.chunks; c += slots) {
      const float* from = partials + (outer * plan.chunks + c) * kSums * plan.columns + column;
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int k = 0; k < N; ++k) sums[s][k] += __ldcg(from + s * plan.columns + k);
    }
  }
  join_slots(sums, shared, plan.lanes);
  if (slot == 0 && inside)
#pragma unroll
    for (int s = 0; s < kSums; ++s)
#pragma unroll
      for (int k = 0; k < N; ++k) op.store(s, outer * plan.columns + column + k, sums[s][k]);
}

template <int N, typename Op>
void launch_column_sums(const ColumnSums& plan, const Op& op, const SumSpace& space, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(plan.outer * plan.tiles * plan.chunks);
  column_sums<N><<<blocks, kSumThreads, 0, stream>>>(plan, op, static_cast<float*>(space.partials), space.counters);
  check_launch();
}

}  // namespace plimsoll::engine::cuda
