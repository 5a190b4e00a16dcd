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
