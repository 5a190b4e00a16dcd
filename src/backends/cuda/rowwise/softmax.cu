// softmax, and cross-entropy from logits. Both use the row's maximum and the sum of exponentials relative to it.
#include "backends/cuda/rowwise/rows.cuh"

namespace plimsoll::engine::cuda {

namespace {

struct Exponentials {
  float most, sum;
};

// If each visit reads memory, uses a single visit (online softmax): a thread keeps its sum relative to its maximum so
// far.
template <typename R, typename G>
__device__ Exponentials exponentials(const R& row, const G& group) {
  float most = -INFINITY, sum = 0;
  if constexpr (R::kReadOnce) {
    row.visit([&](const float(&v)[1], int) { most = fmaxf(most, v[0]); });
    most = group.max(most);
    row.visit([&](const float(&v)[1], int) { sum += __expf(v[0] - most); });
    return {most, group.sum(sum)};
  } else {
    row.visit([&](const float(&v)[1], int) {
      if (v[0] > most) {
        sum = sum * __expf(most - v[0]) + 1.0F;
        most = v[0];
      } else {
        sum += v[0] == -INFINITY ? 0.0F : __expf(v[0] - most);
      }
    });
    const float all = group.max(most);
    return {all, group.sum(most == -INFINITY && all != -INFINITY ? 0.0F : sum * __expf(most - all))};
  }
}

template <typename T>
struct Softmax {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  T* y;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const Exponentials e = exponentials(row, group);
    const float share = 1.0F / e.sum;
    row.write(y + at * row.columns(), [&](const float(&v)[1], int) { return __expf(v[0] - e.most) * share; });
  }
};

template <typename T>
struct SoftmaxGrad {
  static constexpr int kInputs = 2;
  const T* inputs[2];  // dy, y
  T* dx;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    float dot = 0;
    row.visit([&](const float(&v)[2], int) { dot += v[0] * v[1]; });
    dot = group.sum(dot);
    row.write(dx + at * row.columns(), [&](const float(&v)[2], int) { return (v[0] - dot) * v[1]; });
  }
};

template <typename T>
struct CrossEntropyOfLogits {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  Target target;
  float* loss;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const Exponentials e = exponentials(row, group);
    const float log_sum = logf(e.sum);
    const RowTarget t(target, at, row.columns());
    float result = 0;
    if (target.labels && target.smoothing == 0) {
      if (at < 0 || group.rank != 0) return;
      result = t.valid ? (e.most - to_float(inputs[0][at * row.columns() + t.label])) + log_sum : NAN;
    } else {
      row.visit([&](const float(&v)[1], int column) { result += t(column) * ((e.most - v[0]) + log_sum); });
      result = group.sum(result);
      if (!t.valid) result = NAN;
    }
    if (at >= 0 && group.rank == 0) loss[at] = result;
  }
};

template <typename T>
struct CrossEntropyOfLogitsGrad {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const float* dloss;
  Target target;
  T* dx;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const Exponentials e = exponentials(row, group);
    const float share = 1.0F / e.sum;
    const RowTarget t(target, at, row.columns());
    const float d = at < 0 ? 0.0F : t.valid ? dloss[at] : NAN;
    row.write(dx + at * row.columns(),
              [&](const float(&v)[1], int column) { return d * (__expf(v[0] - e.most) * share - t(column)); });
  }
};

}  // namespace

void launch_softmax(const Rows& g, Element element, const void* x, void* y, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows<T>(g, Softmax<T>{{static_cast<const T*>(x)}, static_cast<T*>(y)}, stream);
  });
}

void launch_softmax_grad(const Rows& g, Element element, const void* dy, const void* y, void* dx, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows<T>(g, SoftmaxGrad<T>{{static_cast<const T*>(dy), static_cast<const T*>(y)}, static_cast<T*>(dx)},
                   stream);
  });
}

void launch_softmax_cross_entropy(const Rows& g, Element element, const void* logits, const Target& target, float* loss,
                                  cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows<T>(g, CrossEntropyOfLogits<T>{{static_cast<const T*>(logits)}, target, loss}, stream);
  });
}

void launch_softmax_cross_entropy_grad(const Rows& g, Element element, const float* dloss, const void* logits,
                                       const Target& target, void* dlogits, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows<T>(
        g, CrossEntropyOfLogitsGrad<T>{{static_cast<const T*>(logits)}, dloss, target, static_cast<T*>(dlogits)},
        stream);
  });
}

}  // namespace plimsoll::engine::cuda
