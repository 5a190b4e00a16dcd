// Split-K GEMM for few columns (n <= 32) and long sums (split_k.h). The first kernel writes float32 partial sums, one
// per chunk of k; the second adds the chunks in a fixed order and applies bias and relu. All matrices are row-major.
#include "backends/cuda/matmul/split_k_launch.h"

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/matmul/split_k.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kRows = kSplitKWarpRows, kThreads = kSplitKWarps * kWarp, kStep = kSplitKStep, kLanes = kStep / kWarp;

// How many of V sums a lane is left with: half after each of five exchanges, while the count is even.
__host__ __device__ constexpr int sums_left(int v, int offset = kWarp / 2) {
  return offset == 0 ? v : sums_left(v % 2 == 0 ? v / 2 : v, offset / 2);
}

// Sums V values each over the lanes of a warp. While V is even, a lane gives half of them to its partner and keeps the
// other half, so that V sums cost about V exchanges instead of 5 V. On return the lane has the sums starting at index
// `at`.
template <int kOffset = kWarp / 2, int V>
__device__ inline void sum_over_lanes(float (&v)[V], int lane, int& at, float (&left)[sums_left(V, kOffset)]) {
  if constexpr (kOffset == 0) {
#pragma unroll
    for (int i = 0; i < V; ++i) left[i] = v[i];
  } else if constexpr (V % 2 == 0) {
    const bool upper = (lane & kOffset) != 0;
    float half[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
      const float kept = upper ? v[V / 2 + i] : v[i], given = upper ? v[i] : v[V / 2 + i];
      half[i] = kept + __shfl_xor_sync(kAllLanes, given, kOffset);
    }
    if (upper) at += V / 2;
    sum_over_lanes<kOffset / 2>(half, lane, at, left);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] += __shfl_xor_sync(kAllLanes, v[i], kOffset);
    sum_over_lanes<kOffset / 2>(v, lane, at, left);
  }
}

// Block (chunk, tile) computes partial sums over one chunk of k. A warp has kRows rows of `a`; its lanes hold adjacent
// k, and N >= n columns in registers.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    partial_sums(int m, int n, int64_t k, int64_t chunk_terms, const T* __restrict__ a, const T* __restrict__ b,
                 float* __restrict__ sums) {
  __shared__ float columns[N][kStep + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = (static_cast<int>(blockIdx.y) * kSplitKWarps + warp) * kRows;
  const int64_t begin = blockIdx.x * chunk_terms, end = min(begin + chunk_terms, k);
  for (int i = static_cast<int>(threadIdx.x); i < N * (kStep + 1); i += kThreads) (&columns[0][0])[i] = 0;
  float total[kRows * N] = {};
  for (int64_t first = begin; first < end; first += kStep) {
    const int terms = static_cast<int>(min(static_cast<int64_t>(kStep), end - first));
    float x[kRows][kLanes];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const int term = i * kWarp + lane;
        x[r][i] = row + r < m && term < terms ? to_float(a[(row + r) * k + first + term]) : 0.0F;
      }
    __syncthreads();  // all threads have read the previous step
    for (int i = static_cast<int>(threadIdx.x); i < kStep * n; i += kThreads)
      columns[i % n][i / n] = i < terms * n ? to_float(b[first * n + i]) : 0.0F;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLanes; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float w = columns[j][i * kWarp + lane];
#pragma unroll
        for (int r = 0; r < kRows; ++r) total[r * N + j] = fmaf(x[r][i], w, total[r * N + j]);
      }
  }
  float left[sums_left(kRows * N)];
  int at = 0;
  sum_over_lanes(total, lane, at, left);
  float* mine = sums + static_cast<int64_t>(blockIdx.x) * m * n;
#pragma unroll
  for (int i = 0; i < sums_left(kRows * N); ++i) {
    const int r = row + (at + i) / N, j = (at + i) % N;
    if (r < m && j < n) mine[static_cast<int64_t>(r) * n + j] = left[i];
  }
}

// A block adds up 32 results: each of its 8 warps adds every 8th chunk, then the warps' sums are combined.
template <typename T>
__global__ void __launch_bounds__(kThreads) finish(int outputs, int n, int chunks, const float* __restrict__ sums,
                                                   const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  __shared__ float shared[kSplitKWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int output = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (output < outputs)
#pragma unroll 8
    for (int chunk = warp; chunk < chunks; chunk += kSplitKWarps)
      sum += sums[static_cast<int64_t>(chunk) * outputs + output];
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || output >= outputs) return;
#pragma unroll
  for (int i = 1; i < kSplitKWarps; ++i) sum += shared[i][lane];
  if (bias != nullptr) sum += to_float(bias[output % n]);
  y[output] = from_float<T>(relu && sum < 0 ? 0.0F : sum);
}

template <typename T, int N>
void launch_partial_sums(const SplitKProduct& p, const SplitKPlan& plan, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(plan.chunks), static_cast<unsigned>(plan.tiles));
  partial_sums<T, N><<<grid, kThreads, 0, stream>>>(static_cast<int>(p.m), static_cast<int>(p.n), p.k, plan.chunk_terms,
                                                    static_cast<const T*>(p.a), static_cast<const T*>(p.b), p.sums);
}

}  // namespace

void launch_split_k(const SplitKProduct& p, cudaStream_t stream) {
  const SplitKPlan plan = plan_split_k(p.m, p.k);
  assert(p.n <= kSplitKColumns);
  with_element(p.element, [&]<typename T>() {
    if (p.n <= 4)
      launch_partial_sums<T, 4>(p, plan, stream);
    else if (p.n <= 12)
      launch_partial_sums<T, 12>(p, plan, stream);
    else if (p.n <= 20)
      launch_partial_sums<T, 20>(p, plan, stream);
    else
      launch_partial_sums<T, 32>(p, plan, stream);
    const auto outputs = static_cast<int>(p.m * p.n);
    finish<T><<<blocks_for(outputs, kWarp), kThreads, 0, stream>>>(
        outputs, static_cast<int>(p.n), static_cast<int>(plan.chunks), p.sums, static_cast<const T*>(p.bias), p.relu,
        static_cast<T*>(p.y));
  });
}

}  // namespace plimsoll::engine::cuda
