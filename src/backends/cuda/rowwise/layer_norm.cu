// Layer normalisation of rows and its input gradient. The variance is computed from differences to the mean, not from
// sums of squares.
#include "backends/cuda/rowwise/rows.cuh"

namespace plimsoll::engine::cuda {

namespace {

template <typename T>
struct LayerNorm {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const float *gamma, *beta;
  T* y;
  float *mean, *rstd;
  float epsilon, share;  // 1 / columns
  bool rms;              // the mean is taken as 0

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    float sum = 0, squares = 0;
    if (!rms) row.visit([&](const float(&v)[1], int) { sum += v[0]; });
    const float middle = rms ? 0.0F : group.sum(sum) * share;
    row.visit([&](const float(&v)[1], int) { squares += (v[0] - middle) * (v[0] - middle); });
    const float scale = 1.0F / sqrtf(group.sum(squares) * share + epsilon);
    row.write(y + at * row.columns(), [&](const float(&v)[1], int column) {
      const float normal = (v[0] - middle) * scale;
      return normal * (gamma ? __ldg(gamma + column) : 1.0F) + (beta ? __ldg(beta + column) : 0.0F);
    });
    if (at >= 0 && group.rank == 0) {
      mean[at] = middle;
      rstd[at] = scale;
    }
  }
};

template <typename T>
struct LayerNormGrad {
  static constexpr int kInputs = 2;
  const T* inputs[2];  // dy, x
  const float *mean, *rstd, *gamma;
  T* dx;
  float share;  // 1 / columns
  bool rms;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const float middle = at < 0 ? 0.0F : mean[at], scale = at < 0 ? 0.0F : rstd[at];
    const auto through_gamma = [&](float dy, int column) { return gamma ? dy * __ldg(gamma + column) : dy; };
    float sum = 0, dot = 0;
    row.visit([&](const float(&v)[2], int column) {
      const float d = through_gamma(v[0], column);
      sum += d;
      dot += d * (v[1] - middle) * scale;
    });
    sum = rms ? 0.0F : group.sum(sum) * share;
    dot = group.sum(dot) * share;
    row.write(dx + at * row.columns(), [&](const float(&v)[2], int column) {
      return scale * (through_gamma(v[0], column) - (sum + (v[1] - middle) * scale * dot));
    });
  }
};

}  // namespace

void launch_layer_norm(const Rows& g, Element element, float epsilon, bool rms, const void* x, const float* gamma,
                       const float* beta, void* y, float* mean, float* rstd, cudaStream_t stream) {
  const float share = 1.0F / static_cast<float>(g.columns);
  with_element(element, [&]<typename T>() {
    launch_rows<T>(
        g, LayerNorm<T>{{static_cast<const T*>(x)}, gamma, beta, static_cast<T*>(y), mean, rstd, epsilon, share, rms},
        stream);
  });
}

void launch_layer_norm_input_grad(const Rows& g, Element element, bool rms, const void* dy, const void* x,
                                  const float* mean, const float* rstd, const float* gamma, void* dx,
                                  cudaStream_t stream) {
  const float share = 1.0F / static_cast<float>(g.columns);
  with_element(element, [&]<typename T>() {
    launch_rows<T>(
        g,
        LayerNormGrad<T>{
            {static_cast<const T*>(dy), static_cast<const T*>(x)}, mean, rstd, gamma, static_cast<T*>(dx), share, rms},
        stream);
  });
}

}  // namespace plimsoll::engine::cuda
