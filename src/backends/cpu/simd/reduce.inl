// Sums over a range, in double. The caller cuts ranges into fixed pieces, so the result is the same for any number of
// threads.

double sum(const float* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

double sum_of_squares(const float* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

double sum_of_magnitudes(const float* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(__builtin_fabsf(x[i]));
  return total;
}

double dot(const float* x, const float* y, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return total;
}

// The combination of a reduction as a type, so that each kind has a loop of its own.
struct SumOf {
  static constexpr double kStart = 0;
  static double of(double a, double b) { return a + b; }
};
struct ProductOf {
  static constexpr double kStart = 1;
  static double of(double a, double b) { return a * b; }
};
struct LargestOf {
  static constexpr double kStart = -__builtin_inf();
  static double of(double a, double b) { return b > a || b != b ? b : a; }
};
struct SmallestOf {
  static constexpr double kStart = __builtin_inf();
  static double of(double a, double b) { return b < a || b != b ? b : a; }
};

// Sixteen partial results, so that neighbouring elements are independent.
template <typename Combination>
double run_of(const float* x, int64_t n) {
  constexpr int64_t kPartial = 16;
  double lanes[kPartial];
  for (double& lane : lanes) lane = Combination::kStart;
  int64_t i = 0;
  for (; i + kPartial <= n; i += kPartial)
    for (int64_t k = 0; k < kPartial; ++k) lanes[k] = Combination::of(lanes[k], static_cast<double>(x[i + k]));
  double total = Combination::kStart;
  for (double lane : lanes) total = Combination::of(total, lane);
  for (; i < n; ++i) total = Combination::of(total, static_cast<double>(x[i]));
  return total;
}

template <typename Combination>
void rows_of(const float* x, int64_t stride, int64_t rows, int64_t width, double* results) {
  for (int64_t r = 0; r < rows; ++r, x += stride)
    for (int64_t c = 0; c < width; ++c) results[c] = Combination::of(results[c], static_cast<double>(x[c]));
}

double reduce_run(ReduceKind kind, const float* x, int64_t n) {
  if (kind == ReduceKind::kSum) return run_of<SumOf>(x, n);
  if (kind == ReduceKind::kProd) return run_of<ProductOf>(x, n);
  return kind == ReduceKind::kMax ? run_of<LargestOf>(x, n) : run_of<SmallestOf>(x, n);
}

void reduce_rows(ReduceKind kind, const float* x, int64_t stride, int64_t rows, int64_t width, double* results) {
  if (kind == ReduceKind::kSum) return rows_of<SumOf>(x, stride, rows, width, results);
  if (kind == ReduceKind::kProd) return rows_of<ProductOf>(x, stride, rows, width, results);
  return kind == ReduceKind::kMax ? rows_of<LargestOf>(x, stride, rows, width, results)
                                  : rows_of<SmallestOf>(x, stride, rows, width, results);
}

void arg_extreme(float sign, const float* x, int64_t stride, int64_t rows, int64_t width, int32_t* index) {
  float best[256];
  for (int64_t c = 0; c < width; ++c) {
    best[c] = sign * x[c];
    index[c] = 0;
  }
  for (int64_t r = 1; r < rows; ++r) {
    const float* row = x + r * stride;
    for (int64_t c = 0; c < width; ++c) {
      const float value = sign * row[c];
      const bool better = value > best[c];
      index[c] = better ? static_cast<int32_t>(r) : index[c];
      best[c] = better ? value : best[c];
    }
  }
}
