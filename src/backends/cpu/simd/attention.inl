// Rows of attention scores.

// x *= scale. Returns the largest.
float scaled_scores(float* x, float scale, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  return row_max(x, n);
}

// x = exp(x - top). Returns the sum of x.
double score_weights(float* x, float top, int64_t n) {
  return exp_row(x, top, x, n);
}

// products = weights * (products - own) * scale: the gradient of the scores.
void score_gradients(const float* weights, float* products, float own, float scale, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) products[i] = weights[i] * (products[i] - own) * scale;
}

void scaled_row(float* x, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}
