// The gradients of layer normalisation's gamma and beta: two sums over all rows in one kernel.
#include "backends/cuda/reduce/column_sums.cuh"

namespace plimsoll::engine::cuda {

namespace {

template <typename T>
struct ParamGrad {
  static constexpr int kSums = 2;
  const T *dy, *x;
  const float *mean, *rstd;
  float *dgamma, *dbeta;
  int64_t columns;

  template <int N>
  __device__ void add(int64_t row, int64_t column, float (&sums)[2][N]) const {
    const auto d = load_pack<N>(dy + row * columns + column);
    const auto v = load_pack<N>(x + row * columns + column);
    const float middle = __ldg(mean + row), scale = __ldg(rstd + row);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[0][k] += to_float(d.v[k]) * ((to_float(v.v[k]) - middle) * scale);
      sums[1][k] += to_float(d.v[k]);
    }
  }
  __device__ void store(int sum, int64_t at, float value) const {
    (sum == 0 ? dgamma : dbeta)[at] = value;
  }
};

}  // namespace

void launch_layer_norm_param_grad(const ColumnSums& plan, Element element, const void* dy, const void* x,
                                  const float* mean, const float* rstd, float* dgamma, float* dbeta,
                                  const SumSpace& space, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    const ParamGrad<T> op{static_cast<const T*>(dy), static_cast<const T*>(x), mean, rstd, dgamma, dbeta, plan.columns};
    if (plan.pack == 1)
      launch_column_sums<1>(plan, op, space, stream);
    else
      launch_column_sums<kPack<T>>(plan, op, space, stream);
  });
}

}  // namespace plimsoll::engine::cuda
