// Losses of rows of probabilities and element-wise losses, as Keras on TensorFlow computes them, and the metric op
// `match`.
#include "backends/cuda/rowwise/rows.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr float kEpsilon = 1e-7F;  // keras.config.epsilon()
constexpr float kMost = 1.0F - kEpsilon;

__device__ float clip(float p) {
  return fminf(fmaxf(p, kEpsilon), kMost);
}
// As in tf.clip_by_value, the bounds themselves pass the gradient.
__device__ bool inside(float p) {
  return p >= kEpsilon && p <= kMost;
}

// With labels the row is clipped and then normalised; with dense targets it is normalised and then clipped.
template <typename T>
struct CrossEntropy {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  Target target;
  float* loss;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const RowTarget t(target, at, row.columns());
    const bool sparse = target.labels != nullptr;
    float sum = 0, result = 0;
    row.visit([&](const float(&v)[1], int) { sum += sparse ? clip(v[0]) : v[0]; });
    sum = group.sum(sum);
    row.visit([&](const float(&v)[1], int column) {
      const float weight = t(column);
      if (weight != 0 || !sparse) result -= weight * logf(sparse ? clip(v[0]) / sum : clip(v[0] / sum));
    });
    result = group.sum(result);
    if (at >= 0 && group.rank == 0) loss[at] = t.valid ? result : NAN;
  }
};

template <typename T>
struct CrossEntropyGrad {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const float* dloss;
  Target target;
  T* dp;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const RowTarget t(target, at, row.columns());
    const bool sparse = target.labels != nullptr;
    const float d = at < 0 ? 0.0F : t.valid ? dloss[at] : NAN;
    float sum = 0, through_sum = 0;
    row.visit([&](const float(&v)[1], int) { sum += sparse ? clip(v[0]) : v[0]; });
    sum = group.sum(sum);
    T* to = dp + at * row.columns();
    if (sparse) {
      row.write(to, [&](const float(&v)[1], int column) {
        return inside(v[0]) ? d * (1.0F / sum - t(column) / v[0]) : 0.0F;
      });
      return;
    }
    row.visit([&](const float(&v)[1], int column) {
      if (inside(v[0] / sum)) through_sum += t(column);
    });
    through_sum = group.sum(through_sum);
    row.write(to, [&](const float(&v)[1], int column) {
      const float direct = inside(v[0] / sum) ? t(column) * sum / v[0] : 0.0F;
      return d * (through_sum - direct) / sum;
    });
  }
};

template <PointLoss kKind>
struct Point {
  float smoothing;

  __device__ float smoothed(float t) const { return t * (1.0F - smoothing) + 0.5F * smoothing; }
  __device__ float value(float x, float target) const {
    const float d = x - target;
    if constexpr (kKind == PointLoss::kSquared) return d * d;
    if constexpr (kKind == PointLoss::kAbsolute) return fabsf(d);
    const float t = smoothed(target);
    if constexpr (kKind == PointLoss::kBinaryFromLogits) return fmaxf(x, 0.0F) - x * t + log1pf(expf(-fabsf(x)));
    const float p = clip(x);
    return -(t * logf(p) + (1.0F - t) * logf(1.0F - p));
  }
  __device__ float slope(float x, float target) const {
    const float d = x - target;
    if constexpr (kKind == PointLoss::kSquared) return 2.0F * d;
    if constexpr (kKind == PointLoss::kAbsolute) return d > 0 ? 1.0F : d < 0 ? -1.0F : 0.0F;
    const float t = smoothed(target);
    if constexpr (kKind == PointLoss::kBinaryFromLogits) {
      const float e = expf(-fabsf(x));
      return (x >= 0 ? 1.0F / (1.0F + e) : e / (1.0F + e)) - t;
    }
    return inside(x) ? -t / x + (1.0F - t) / (1.0F - x) : 0.0F;
  }
};

template <typename T, PointLoss kKind>
struct MeanPointLoss {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const float* target;
  float* loss;
  Point<kKind> point;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const float* t = target + (at < 0 ? 0 : at) * row.columns();
    float sum = 0;
    row.visit([&](const float(&v)[1], int column) { sum += point.value(v[0], t[column]); });
    sum = group.sum(sum);
    if (at >= 0 && group.rank == 0) loss[at] = sum / static_cast<float>(row.columns());
  }
};

template <typename T, PointLoss kKind>
struct MeanPointLossGrad {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const float *dloss, *target;
  T* dx;
  Point<kKind> point;

  template <typename R, typename G>
  __device__ void run(R& row, const G&, int64_t at) const {
    if (at < 0) return;
    const float* t = target + at * row.columns();
    const float d = dloss[at] / static_cast<float>(row.columns());
    row.write(dx + at * row.columns(),
              [&](const float(&v)[1], int column) { return d * point.slope(v[0], t[column]); });
  }
};

// The first of equal maxima. A thread visits its columns in order, except for the edges.
struct First {
  float most = -INFINITY;
  int column = 0x7fffffff;

  __device__ void take(float v, int at) {
    if (v > most || (v == most && at < column)) {
      most = v;
      column = at;
    }
  }
  template <typename G>
  __device__ int of(const G& group) const {
    const float all = group.max(most);
    return group.min(most == all ? column : 0x7fffffff);
  }
};

template <typename T, MatchKind kKind>
struct Match {
  static constexpr int kInputs = 1;
  const T* inputs[1];
  const int32_t* labels;
  const float* target;
  float* result;
  float threshold;

  template <typename R, typename G>
  __device__ void run(R& row, const G& group, int64_t at) const {
    const float* t = kKind == MatchKind::kSparse ? nullptr : target + (at < 0 ? 0 : at) * row.columns();
    float answer = 0;
    if constexpr (kKind == MatchKind::kBinary) {
      float right = 0;  // counts integers, exact up to 2^24 columns
      row.visit([&](const float(&v)[1], int column) {
        right += (v[0] > threshold ? 1.0F : 0.0F) == t[column] ? 1.0F : 0.0F;
      });
      answer = group.sum(right) / static_cast<float>(row.columns());
    } else {
      First first, wanted;
      row.visit([&](const float(&v)[1], int column) {
        first.take(v[0], column);
        if constexpr (kKind == MatchKind::kCategorical) wanted.take(t[column], column);
      });
      const int found = first.of(group);
      if constexpr (kKind == MatchKind::kCategorical) {
        answer = found == wanted.of(group) ? 1.0F : 0.0F;
      } else if (at >= 0) {
        answer = found == labels[at] ? 1.0F : 0.0F;
      }
    }
    if (at >= 0 && group.rank == 0) result[at] = answer;
  }
};

// Calls f.operator()<kind>().
template <typename F>
void with_point_loss(PointLoss kind, F f) {
  if (kind == PointLoss::kSquared) f.template operator()<PointLoss::kSquared>();
  if (kind == PointLoss::kAbsolute) f.template operator()<PointLoss::kAbsolute>();
  if (kind == PointLoss::kBinaryFromLogits) f.template operator()<PointLoss::kBinaryFromLogits>();
  if (kind == PointLoss::kBinaryFromProbabilities) f.template operator()<PointLoss::kBinaryFromProbabilities>();
}

}  // namespace

void launch_cross_entropy(const Rows& g, Element element, const void* p, const Target& target, float* loss,
                          cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows_once<T>(g, CrossEntropy<T>{{static_cast<const T*>(p)}, target, loss}, stream);
  });
}

void launch_cross_entropy_grad(const Rows& g, Element element, const float* dloss, const void* p, const Target& target,
                               void* dp, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    launch_rows_once<T>(g, CrossEntropyGrad<T>{{static_cast<const T*>(p)}, dloss, target, static_cast<T*>(dp)}, stream);
  });
}

void launch_point_loss(const Rows& g, Element element, PointLoss kind, float smoothing, const void* x,
                       const float* target, float* loss, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    with_point_loss(kind, [&]<PointLoss kKind>() {
      launch_rows_once<T>(g, MeanPointLoss<T, kKind>{{static_cast<const T*>(x)}, target, loss, {smoothing}}, stream);
    });
  });
}

void launch_point_loss_grad(const Rows& g, Element element, PointLoss kind, float smoothing, const float* dloss,
                            const void* x, const float* target, void* dx, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    with_point_loss(kind, [&]<PointLoss kKind>() {
      launch_rows_once<T>(
          g, MeanPointLossGrad<T, kKind>{{static_cast<const T*>(x)}, dloss, target, static_cast<T*>(dx), {smoothing}},
          stream);
    });
  });
}

void launch_match(const Rows& g, Element element, MatchKind kind, float threshold, const void* x, const int32_t* labels,
                  const float* target, float* result, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    const auto launch = [&]<MatchKind kKind>() {
      launch_rows_once<T>(g, Match<T, kKind>{{static_cast<const T*>(x)}, labels, target, result, threshold}, stream);
    };
    if (kind == MatchKind::kSparse) launch.template operator()<MatchKind::kSparse>();
    if (kind == MatchKind::kCategorical) launch.template operator()<MatchKind::kCategorical>();
    if (kind == MatchKind::kBinary) launch.template operator()<MatchKind::kBinary>();
  });
}

}  // namespace plimsoll::engine::cuda
