// The matrix product used by all convolution and matmul references: c[m,n] = A[m,k] * B[k,n] in float64, summed over k
// in order, so that the result does not depend on the number of threads or the instruction set.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll::engine {

inline constexpr int64_t kGemmRows = 4;  // rows of A processed together

// Element (k, n) is data[k / period * period_stride + k % period * row_stride + n * column_stride].
struct GemmB {
  const double* data;
  int64_t row_stride, column_stride;
  int64_t period = INT64_MAX, period_stride = 0;
};

// Fills a[(i - k0) * kGemmRows + r] with A[row + r, i] for i in [k0, k1) and r below `rows`. The rest stays zero.
using GemmPackA = std::function<void(int64_t row, int64_t rows, int64_t k0, int64_t k1, double* a)>;

void gemm(int64_t m, int64_t n, int64_t k, const GemmPackA& pack_a, const GemmB& b, double* c, int64_t c_row_stride);

}  // namespace plimsoll::engine
