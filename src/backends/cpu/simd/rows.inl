// Softmax and layer normalisation: independent rows of k elements.

inline float row_max(const float* x, int64_t k) {
  float best = x[0];
#pragma omp simd reduction(max : best)
  for (int64_t i = 0; i < k; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// y = exp(x - top). Returns the sum of y.
inline double exp_row(const float* x, float top, float* y, int64_t k) {
#pragma omp simd
  for (int64_t i = 0; i < k; ++i) y[i] = exp_of(x[i] - top);
  return sum(y, k);
}

void softmax(const float* x, float* y, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, x += k, y += k) {
    const auto factor = static_cast<float>(1.0 / exp_row(x, row_max(x, k), y, k));
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) y[i] *= factor;
  }
}

void softmax_grad(const float* dy, const float* y, float* dx, int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; ++r, dy += k, y += k, dx += k) {
    const auto shared = static_cast<float>(dot(dy, y, k));
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) dx[i] = y[i] * (dy[i] - shared);
  }
}

// With `rms` the mean is taken as 0.
void layer_norm(const float* x, const float* gamma, const float* beta, float* y, float* mean, float* rstd, int64_t rows,
                int64_t k, double epsilon, bool rms) {
  for (int64_t r = 0; r < rows; ++r, x += k, y += k) {
    const double center = rms ? 0 : sum(x, k) / static_cast<double>(k);
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < k; ++i) {
      const double d = static_cast<double>(x[i]) - center;
      squares += d * d;
    }
    mean[r] = static_cast<float>(center);
    rstd[r] = static_cast<float>(1.0 / __builtin_sqrt(squares / static_cast<double>(k) + epsilon));
    const float m = mean[r], s = rstd[r];
    if (gamma != nullptr && beta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) y[i] = (x[i] - m) * s * gamma[i] + beta[i];
    } else if (gamma != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) y[i] = (x[i] - m) * s * gamma[i];
    } else if (beta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) y[i] = (x[i] - m) * s + beta[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < k; ++i) y[i] = (x[i] - m) * s;
    }
  }
}

void layer_norm_input_grad(const float* dy, const float* x, const float* mean, const float* rstd, const float* gamma,
                           float* dx, int64_t rows, int64_t k, bool rms) {
  for (int64_t r = 0; r < rows; ++r, dy += k, x += k, dx += k) {
    const float m = mean[r], s = rstd[r];
    double total = 0, against = 0;
#pragma omp simd reduction(+ : total, against)
    for (int64_t i = 0; i < k; ++i) {
      const float d = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
      total += static_cast<double>(d);
      against += static_cast<double>(d) * static_cast<double>((x[i] - m) * s);
    }
    const auto shift = rms ? 0.0F : static_cast<float>(total / static_cast<double>(k));
    const auto slope = static_cast<float>(against / static_cast<double>(k));
#pragma omp simd
    for (int64_t i = 0; i < k; ++i) {
      const float d = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
      dx[i] = s * (d - shift - (x[i] - m) * s * slope);
    }
  }
}

void layer_norm_param_grad(const float* dy, const float* x, const float* mean, const float* rstd, int64_t rows,
                           int64_t c, int64_t stride, double* dgamma, double* dbeta) {
  for (int64_t r = 0; r < rows; ++r, dy += stride, x += stride) {
    const float m = mean[r], s = rstd[r];
#pragma omp simd
    for (int64_t i = 0; i < c; ++i) {
      dgamma[i] += static_cast<double>(dy[i]) * static_cast<double>((x[i] - m) * s);
      dbeta[i] += static_cast<double>(dy[i]);
    }
  }
}
