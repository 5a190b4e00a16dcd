// Sums over all elements and over one axis. For a total, blocks stride over the elements, and the block that finishes
// last adds up the partial sums of all blocks in double precision and in order.
#include <type_traits>

#include "backends/cuda/reduce/column_sums.cuh"

namespace plimsoll::engine::cuda {

namespace {

// An op returns the terms of elements [at, at + N) and stores the total.
template <int N, typename Op>
__global__ void __launch_bounds__(kSumThreads) total_sum(int64_t elements, Op op, double* partials, unsigned* counter) {
  __shared__ double scratch[kWarp];
  float sums[N] = {};
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSumThreads * N;
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x) * N;
#pragma unroll 4
  for (; at + N <= elements; at += step) {
    float terms[N];
    op.template terms<N>(at, terms);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += terms[k];
  }
  for (; at < elements && N > 1; ++at) {  // the remainder of the last pack
    float term[1];
    op.template terms<1>(at, term);
    sums[0] += term[0];
  }
  double sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum += sums[k];
  sum = block_sum(sum, scratch);
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) op.store(sum);
    return;
  }
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
  if (!is_last_block(counter, gridDim.x)) return;
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kSumThreads) sum += __ldcg(partials + i);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) op.store(sum);
}

template <int N, typename Op>
void launch_total(int64_t elements, const Op& op, const SumSpace& space, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(total_sum_blocks(elements));
  total_sum<N><<<blocks, kSumThreads, 0, stream>>>(elements, op, static_cast<double*>(space.partials), space.counters);
  check_launch();
}

template <typename T>
struct Penalty {
  const T* x;
  float l1, l2;
  float* to;

  template <int N>
  __device__ void terms(int64_t at, float (&terms)[N]) const {
    const auto pack = load_pack<N>(x + at);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float v = to_float(pack.v[k]);
      terms[k] = l1 * fabsf(v) + l2 * v * v;
    }
  }
  __device__ void store(double sum) const {
    *to = static_cast<float>(sum);
  }
};

struct WeightedSum {
  const float *v, *scale, *weights;
  int64_t rows_per_weight;
  float* to;

  template <int N>
  __device__ void terms(int64_t at, float (&terms)[N]) const {
    const auto pack = load_pack<N>(v + at);
#pragma unroll
    for (int k = 0; k < N; ++k) terms[k] = weights ? weights[(at + k) / rows_per_weight] * pack.v[k] : pack.v[k];
  }
  __device__ void store(double sum) const {
    *to = static_cast<float>(sum * static_cast<double>(*scale));
  }
};

template <typename From, typename To>
struct Total {
  const From* x;
  To* to;

  template <int N>
  __device__ void terms(int64_t at, float (&terms)[N]) const {
    const auto pack = load_pack<N>(x + at);
#pragma unroll
    for (int k = 0; k < N; ++k) terms[k] = to_float(pack.v[k]);
  }
  __device__ void store(double sum) const {
    *to = from_float<To>(static_cast<float>(sum));
  }
};

template <typename From, typename To>
struct AxisSum {
  static constexpr int kSums = 1;
  const From* x;
  To* to;
  int64_t columns;

  template <int N>
  __device__ void add(int64_t row, int64_t column, float (&sums)[1][N]) const {
    const auto pack = load_pack<N>(x + row * columns + column);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[0][k] += to_float(pack.v[k]);
  }
  __device__ void store(int, int64_t at, float value) const {
    to[at] = from_float<To>(value);
  }
};

// Sums over the innermost axis: one warp or one block per row.
template <typename From, typename To, bool kBlock>
__global__ void __launch_bounds__(kSumThreads)
    row_sums(int64_t rows, int64_t columns, const From* __restrict__ x, To* __restrict__ to) {
  __shared__ float scratch[kWarp];
  const int rank = static_cast<int>(threadIdx.x) % (kBlock ? kSumThreads : kWarp);
  const int64_t row =
      kBlock ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * (kSumThreads / kWarp) + threadIdx.x / kWarp;
  float sum = 0;
  if (row < rows) {
#pragma unroll 4
    for (int64_t c = rank; c < columns; c += kBlock ? kSumThreads : kWarp) sum += to_float(x[row * columns + c]);
  }
  if constexpr (kBlock)
    sum = block_sum(sum, scratch);
  else
    sum = warp_sum(sum);
  if (row < rows && rank == 0) to[row] = from_float<To>(sum);
}

template <typename From, typename To>
void axis_sum(int64_t outer, int64_t rows, int64_t columns, const From* x, To* to, const SumSpace& space,
              cudaStream_t stream) {
  if (outer == 1 && columns == 1) return launch_total<kPack<From>>(rows, Total<From, To>{x, to}, space, stream);
  if (columns == 1 && rows > 1) {
    if (rows > 1024)
      row_sums<From, To, true><<<static_cast<unsigned>(outer), kSumThreads, 0, stream>>>(outer, rows, x, to);
    else
      row_sums<From, To, false><<<blocks_for(outer, kSumThreads / kWarp), kSumThreads, 0, stream>>>(outer, rows, x, to);
    return check_launch();
  }
  const ColumnSums plan = plan_column_sums(outer, rows, columns, sizeof(From));
  const AxisSum<From, To> op{x, to, columns};
  if (plan.pack == 1) return launch_column_sums<1>(plan, op, space, stream);
  launch_column_sums<kPack<From>>(plan, op, space, stream);
}

__global__ void spread_weights(int64_t rows, const float* dtotal, const float* scale, const float* weights,
                               int64_t rows_per_weight, float* dv) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (row < rows) dv[row] = *dtotal * *scale * (weights ? weights[row / rows_per_weight] : 1.0F);
}

__global__ void clip_factor(const float* squared_norm, float limit, float* to) {
  const float norm = sqrtf(*squared_norm);
  *to = norm <= limit ? 1.0F : limit / norm;  // NaN is preserved
}

}  // namespace

void launch_penalty(int64_t elements, Element element, const void* x, float l1, float l2, float* to,
                    const SumSpace& space, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_total<kPack<T>>(elements, Penalty<T>{static_cast<const T*>(x), l1, l2, to}, space, stream);
  });
}

void launch_weighted_sum(int64_t rows, const float* v, const float* scale, const float* weights,
                         int64_t rows_per_weight, float* to, const SumSpace& space, cudaStream_t stream) {
  launch_total<4>(rows, WeightedSum{v, scale, weights, rows_per_weight, to}, space, stream);
}

void launch_weighted_sum_grad(int64_t rows, const float* dtotal, const float* scale, const float* weights,
                              int64_t rows_per_weight, float* dv, cudaStream_t stream) {
  spread_weights<<<blocks_for(rows, kSumThreads), kSumThreads, 0, stream>>>(rows, dtotal, scale, weights,
                                                                            rows_per_weight, dv);
  check_launch();
}

void launch_clip_factor(const float* squared_norm, float limit, float* to, cudaStream_t stream) {
  clip_factor<<<1, 1, 0, stream>>>(squared_norm, limit, to);
  check_launch();
}

void launch_axis_sum(int64_t outer, int64_t rows, int64_t columns, Element from, const void* x, Element element,
                     void* to, const SumSpace& space, cudaStream_t stream) {
  with_element(from, [&]<typename From>() {
    const auto* source = static_cast<const From*>(x);
    if (element == Element::kF32) return axis_sum(outer, rows, columns, source, static_cast<float*>(to), space, stream);
    with_element(element, [&]<typename To>() {
      if constexpr (std::is_same_v<From, To> || std::is_same_v<From, float>)
        axis_sum(outer, rows, columns, source, static_cast<To*>(to), space, stream);
    });
  });
}

}  // namespace plimsoll::engine::cuda
