// sgd and adam updates of an embedding matrix from the sums of row_sums.cuh. The matrix and its optimizer state are
// read and written once, and the gradient is never stored. The arithmetic has the same bits as the fused element-wise
// kernels, so this file is compiled without contraction (cmake/cuda.cmake).
#include "backends/cuda/embedding/launch.h"
#include "backends/cuda/embedding/row_sums.cuh"

namespace plimsoll::engine::cuda {

namespace {

#define PLIMSOLL_DEVICE_CODE(...) __VA_ARGS__
#include "backends/cuda/fused/update_math.inl"
#undef PLIMSOLL_DEVICE_CODE

__device__ float weight_decayed(float w, float decay, float rate) {
  return decay == 0 ? w : decayed(w, decay, rate);
}

template <bool kMomentum>
struct Sgd {
  static constexpr bool kMayLeaveRows = !kMomentum;
  SgdRows update;

  template <int N>
  struct Held {
    Pack<float, N> w, state;
  };
  __device__ void prepare() const {}
  template <int N>
  __device__ Held<N> load(int64_t at) const {
    Held<N> held;
    held.w = load_pack<N>(update.w + at);
    if constexpr (kMomentum) held.state = load_pack<N>(update.state + at);
    return held;
  }
  template <int N>
  __device__ void store(int64_t at, const float (&sums)[N], Held<N>& held) const {
    const float rate = *update.rate;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float w = weight_decayed(held.w.v[k], update.decay, rate), g = sums[k];
      if constexpr (kMomentum) {
        const float state = sgd_state(held.state.v[k], g, update.momentum, rate);
        held.state.v[k] = state;
        held.w.v[k] = w + (update.nesterov ? sgd_state(state, g, update.momentum, rate) : state);
      } else {
        held.w.v[k] = w - g * rate;
      }
    }
    store_pack(update.new_w + at, held.w);
    if constexpr (kMomentum) store_pack(update.new_state + at, held.state);
  }
};

struct Adam {
  static constexpr bool kMayLeaveRows = false;
  AdamRows update;
  float* alpha;  // one float in the workspace

  template <int N>
  struct Held {
    Pack<float, N> w, m, v;
  };
  __device__ void prepare() const { *alpha = adam_rate(*update.rate, *update.iteration, update.beta_1, update.beta_2); }
  template <int N>
  __device__ Held<N> load(int64_t at) const {
    return {load_pack<N>(update.w + at), load_pack<N>(update.m + at), load_pack<N>(update.v + at)};
  }
  template <int N>
  __device__ void store(int64_t at, const float (&sums)[N], Held<N>& held) const {
    const float step = *alpha, rate = *update.rate;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float g = sums[k], w = weight_decayed(held.w.v[k], update.decay, rate);
      held.m.v[k] = adam_moment(held.m.v[k], g, update.rest_1);
      held.v.v[k] = adam_moment(held.v.v[k], g * g, update.rest_2);
      held.w.v[k] = adam_weight(w, held.m.v[k], held.v.v[k], step, update.epsilon);
    }
    store_pack(update.new_w + at, held.w);
    store_pack(update.new_m + at, held.m);
    store_pack(update.new_v + at, held.v);
  }
};

}  // namespace

void launch_sgd_rows(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                     const SgdRows& update, void* workspace, cudaStream_t stream) {
  SgdRows from = update;
  if (!plan.every_row && from.w != from.new_w) {
    cudaMemcpyAsync(from.new_w, from.w, static_cast<size_t>(plan.rows * plan.width) * sizeof(float),
                    cudaMemcpyDeviceToDevice, stream);
    from.w = from.new_w;
  }
  with_element(element, [&]<typename T>() {
    const auto* gradient = static_cast<const T*>(dy);
    if (from.state != nullptr)
      launch_row_sums(plan, gradient, ids, true, Sgd<true>{from}, workspace, stream);
    else
      launch_row_sums(plan, gradient, ids, true, Sgd<false>{from}, workspace, stream);
  });
}

void launch_adam_rows(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                      const AdamRows& update, void* workspace, cudaStream_t stream) {
  const Adam adam{update, reinterpret_cast<float*>(static_cast<char*>(workspace) + plan.rate)};
  with_element(element, [&]<typename T>() {
    launch_row_sums(plan, static_cast<const T*>(dy), ids, true, adam, workspace, stream);
  });
}

}  // namespace plimsoll::engine::cuda
