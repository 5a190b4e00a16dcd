#include "shrink/lite/dot.h"

#include <algorithm>

// The loops are written to be vectorised, and compiled once per instruction set; the machine's best is taken at start.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_CLONES __attribute__((target_clones("arch=icelake-server", "arch=skylake-avx512", "avx2", "default")))
#else
#define PLIMSOLL_CLONES
#endif

namespace plimsoll::engine::lite {

PLIMSOLL_CLONES
void multiply_rows(const uint8_t* rows, int64_t m, const int8_t* weights, int64_t n, int64_t k_size, int32_t* out) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) {
    const uint8_t *a = rows + i * k_size, *b = a + k_size, *c = b + k_size, *d = c + k_size;
    for (int64_t j = 0; j < n; ++j) {
      const int8_t* w = weights + j * k_size;
      int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (int64_t k = 0; k < k_size; ++k) {
        s0 += int32_t{a[k]} * int32_t{w[k]};
        s1 += int32_t{b[k]} * int32_t{w[k]};
        s2 += int32_t{c[k]} * int32_t{w[k]};
        s3 += int32_t{d[k]} * int32_t{w[k]};
      }
      out[i * n + j] = s0;
      out[(i + 1) * n + j] = s1;
      out[(i + 2) * n + j] = s2;
      out[(i + 3) * n + j] = s3;
    }
  }
  for (; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const int8_t* w = weights + j * k_size;
      int32_t sum = 0;
      for (int64_t k = 0; k < k_size; ++k) sum += int32_t{rows[i * k_size + k]} * int32_t{w[k]};
      out[i * n + j] = sum;
    }
}

PLIMSOLL_CLONES
void multiply_rows(const float* rows, int64_t m, const float* weights, const float* bias, int64_t n, int64_t k_size,
                   float* out) {
  constexpr int64_t kColumns = 32;
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t count = std::min(kColumns, n - first);
    for (int64_t i = 0; i < m; ++i) {
      float sums[kColumns] = {};
      const float* row = rows + i * k_size;
      if (count == kColumns) {
        for (int64_t k = 0; k < k_size; ++k)
          for (int64_t j = 0; j < kColumns; ++j) sums[j] += row[k] * weights[k * n + first + j];
      } else {
        for (int64_t k = 0; k < k_size; ++k)
          for (int64_t j = 0; j < count; ++j) sums[j] += row[k] * weights[k * n + first + j];
      }
      for (int64_t j = 0; j < count; ++j) out[i * n + first + j] = sums[j] + (bias == nullptr ? 0.0F : bias[first + j]);
    }
  }
}

PLIMSOLL_CLONES
void multiply_add(const int16_t* x, const int16_t* w, int64_t n, int32_t* sums) {
  for (int64_t c = 0; c < n; ++c) sums[c] += int32_t{x[c]} * int32_t{w[c]};
}

PLIMSOLL_CLONES
void multiply_add(const float* x, const float* w, int64_t n, float* sums) {
  for (int64_t c = 0; c < n; ++c) sums[c] += x[c] * w[c];
}

}  // namespace plimsoll::engine::lite
