// Losses. A row is one prediction of k values. Probabilities are clipped at 1e-7 and normalised as Keras does on
// TensorFlow: before the clip if the target is a distribution, after the clip if it is a label.

constexpr double kClip = 1e-7;

constexpr float kNotANumber = __builtin_nanf("");

// A label that is not a valid class gives NaN, as in TensorFlow.
inline bool valid(const int32_t* label, int64_t r, int64_t k) {
  return label == nullptr || (label[r] >= 0 && label[r] < k);
}

inline float target_of(const int32_t* label, const float* target, float smoothing, int64_t r, int64_t i, int64_t k) {
  const float t = label != nullptr ? (label[r] == static_cast<int32_t>(i) ? 1.0F : 0.0F) : target[r * k + i];
  return smoothing == 0.0F ? t : t * (1.0F - smoothing) + smoothing / static_cast<float>(k);
}

void softmax_cross_entropy(const float* x, const int32_t* label, const float* target, float smoothing, float* loss,
                           int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k) {
    const float top = row_max(x, k);
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < k; ++i) total += static_cast<double>(exp_of(x[i] - top));
    const double log_sum = __builtin_log(total) + static_cast<double>(top);
    double l = 0;
    if (!valid(label, r, k)) {
      l = kNotANumber;
    } else if (label != nullptr && smoothing == 0.0F) {
      l = log_sum - static_cast<double>(x[label[r]]);
    } else {
      for (int64_t i = 0; i < k; ++i) {
        const auto t = static_cast<double>(target_of(label, target, smoothing, r, i, k));
        l += t * (log_sum - static_cast<double>(x[i]));
      }
    }
    loss[r] = static_cast<float>(l);
  }
}

void softmax_cross_entropy_grad(const float* dloss, const float* x, const int32_t* label, const float* target,
                                float smoothing, float* dx, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, dx += k) {
    const auto factor = static_cast<float>(1.0 / exp_row(x, row_max(x, k), dx, k));
    const float d = valid(label, r, k) ? dloss[r] : kNotANumber;
    for (int64_t i = 0; i < k; ++i) dx[i] = (dx[i] * factor - target_of(label, target, smoothing, r, i, k)) * d;
  }
}

inline double clipped(double p) {
  return p < kClip ? kClip : (p > 1.0 - kClip ? 1.0 - kClip : p);
}
inline bool inside_clip(double p) {
  return p >= kClip && p <= 1.0 - kClip;
}

void cross_entropy(const float* p, const int32_t* label, const float* target, float smoothing, float* loss,
                   int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, p += k) {
    double total = 0, l = valid(label, r, k) ? 0.0 : static_cast<double>(kNotANumber);
    if (label != nullptr) {
      for (int64_t i = 0; i < k; ++i) total += clipped(static_cast<double>(p[i]));
      const double log_total = __builtin_log(total);
      for (int64_t i = 0; i < k; ++i) {
        const auto t = static_cast<double>(target_of(label, target, smoothing, r, i, k));
        if (t != 0) l += t * (log_total - __builtin_log(clipped(static_cast<double>(p[i]))));
      }
    } else {
      total = sum(p, k);
      for (int64_t i = 0; i < k; ++i) {
        const auto t = static_cast<double>(target_of(label, target, smoothing, r, i, k));
        if (t != 0) l -= t * __builtin_log(clipped(static_cast<double>(p[i]) / total));
      }
    }
    loss[r] = static_cast<float>(l);
  }
}

void cross_entropy_grad(const float* dloss, const float* p, const int32_t* label, const float* target, float smoothing,
                        float* dp, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, p += k, dp += k) {
    const auto d = static_cast<double>(valid(label, r, k) ? dloss[r] : kNotANumber);
    double total = 0;
    if (label != nullptr) {
      for (int64_t i = 0; i < k; ++i) total += clipped(static_cast<double>(p[i]));
      for (int64_t i = 0; i < k; ++i) {
        const auto t = static_cast<double>(target_of(label, target, smoothing, r, i, k)), q = static_cast<double>(p[i]);
        dp[i] = inside_clip(q) ? static_cast<float>(d * (1.0 / total - t / q)) : 0.0F;
      }
      continue;
    }
    total = sum(p, k);
    double shared = 0;
    for (int64_t i = 0; i < k; ++i) {
      const double q = static_cast<double>(p[i]) / total;
      if (inside_clip(q)) shared += static_cast<double>(target_of(label, target, smoothing, r, i, k));
    }
    for (int64_t i = 0; i < k; ++i) {
      const double q = static_cast<double>(p[i]) / total;
      const auto t = static_cast<double>(target_of(label, target, smoothing, r, i, k));
      dp[i] = static_cast<float>(d * (shared - (inside_clip(q) ? t / q : 0.0)) / total);
    }
  }
}

inline float smoothed(float t, float smoothing) {
  return t * (1.0F - smoothing) + 0.5F * smoothing;
}
inline float clipped_float(float p) {
  return p < 1e-7F ? 1e-7F : (p > 1.0F - 1e-7F ? 1.0F - 1e-7F : p);
}

inline float binary_loss(float x, float t, bool from_logits) {
  if (from_logits) return (x > 0.0F ? x : 0.0F) - x * t + log_one_plus(exp_of(-__builtin_fabsf(x)));
  const float p = clipped_float(x);
  return -(t * log_of(p) + (1.0F - t) * log_of(1.0F - p));
}
inline float binary_slope(float x, float t, bool from_logits) {
  if (from_logits) return sigmoid_of(x) - t;
  const float p = clipped_float(x);
  return p == x ? (p - t) / (p * (1.0F - p)) : 0.0F;
}

void binary_cross_entropy(const float* x, const float* target, bool from_logits, float smoothing, float* loss,
                          int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k) {
    double total = 0;
    if (from_logits) {
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < k; ++i)
        total += static_cast<double>(binary_loss(x[i], smoothed(target[i], smoothing), true));
    } else {
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < k; ++i)
        total += static_cast<double>(binary_loss(x[i], smoothed(target[i], smoothing), false));
    }
    loss[r] = static_cast<float>(total / static_cast<double>(k));
  }
}

void binary_cross_entropy_grad(const float* dloss, const float* x, const float* target, bool from_logits,
                               float smoothing, float* dx, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k, dx += k) {
    const float d = dloss[r] / static_cast<float>(k);
    // NOLINTNEXTLINE(bugprone-branch-clone): the check does not look inside an omp loop
    if (from_logits) {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) dx[i] = d * binary_slope(x[i], smoothed(target[i], smoothing), true);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) dx[i] = d * binary_slope(x[i], smoothed(target[i], smoothing), false);
    }
  }
}

void squared_error(const float* x, const float* target, float* loss, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < k; ++i) {
      const float d = x[i] - target[i];
      total += static_cast<double>(d * d);
    }
    loss[r] = static_cast<float>(total / static_cast<double>(k));
  }
}

void squared_error_grad(const float* dloss, const float* x, const float* target, float* dx, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k, dx += k) {
    const float d = 2.0F * dloss[r] / static_cast<float>(k);
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) dx[i] = d * (x[i] - target[i]);
  }
}

void absolute_error(const float* x, const float* target, float* loss, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < k; ++i) total += static_cast<double>(__builtin_fabsf(x[i] - target[i]));
    loss[r] = static_cast<float>(total / static_cast<double>(k));
  }
}

void absolute_error_grad(const float* dloss, const float* x, const float* target, float* dx, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, target += k, dx += k) {
    const float d = dloss[r] / static_cast<float>(k);
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) {
      const float e = x[i] - target[i];
      dx[i] = e > 0.0F ? d : (e < 0.0F ? -d : 0.0F);
    }
  }
}
