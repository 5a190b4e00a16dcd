#include "shrink/lite/dot.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The loops are written to be vectorised, and compiled once per instruction set; the machine's best is taken at start.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_CLONES __attribute__((target_clones("arch=icelake-server", "arch=skylake-avx512", "avx2", "default")))
#else
#define PLIMSOLL_CLONES
#endif

namespace plimsoll::engine::lite {

namespace {

PLIMSOLL_CLONES
void multiply_plain(const uint8_t* rows, int64_t m, const int8_t* weights, int64_t n, int64_t k_size, int32_t* out) {
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

#if defined(__x86_64__)
constexpr int64_t kColumns = 16, kDepth = 4;

bool has_vnni() {
  return __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}

// Four numbers of a row; behind its end, zeros.
int32_t four_of(const uint8_t* row, int64_t at, int64_t k) {
  int32_t four = 0;
  std::memcpy(&four, row + at, static_cast<size_t>(std::min(kDepth, k - at)));
  return four;
}

// A tile of `count` rows and 16 columns. vpdpbusd multiplies bytes by int8 and adds four products to an int32; the sum
// of four is at most 2^17, so nothing saturates.
template <int count>
__attribute__((target("avx512f,avx512bw,avx512vnni"))) void multiply_tile(const uint8_t* rows, int64_t k,
                                                                          const int8_t* packed, int64_t n,
                                                                          int64_t columns, int32_t* out) {
  __m512i sums[count];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  const int64_t whole = k / kDepth * kDepth;
  for (int64_t t = 0; t < whole; t += kDepth) {
    const __m512i w = _mm512_loadu_si512(packed + t * kColumns);
    for (int i = 0; i < count; ++i) {
      int32_t four = 0;
      std::memcpy(&four, rows + i * k + t, kDepth);
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(four), w);
    }
  }
  if (whole < k) {
    const __m512i w = _mm512_loadu_si512(packed + whole * kColumns);
    for (int i = 0; i < count; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(four_of(rows + i * k, whole, k)), w);
  }
  const auto mask = static_cast<__mmask16>((1U << columns) - 1);
  for (int i = 0; i < count; ++i) _mm512_mask_storeu_epi32(out + i * n, mask, sums[i]);
}
#endif

}  // namespace

IntegerWeights::IntegerWeights(const int8_t* weights, int64_t n, int64_t k) : weights_(weights), n_(n), k_(k) {
#if defined(__x86_64__)
  if (!has_vnni()) return;
  const int64_t blocks = (n + kColumns - 1) / kColumns, depth = (k + kDepth - 1) / kDepth;
  packed_.resize(static_cast<size_t>(blocks * depth * kColumns * kDepth));
  for (int64_t j = 0; j < n; ++j)
    for (int64_t t = 0; t < k; ++t)
      packed_[static_cast<size_t>(((j / kColumns * depth + t / kDepth) * kColumns + j % kColumns) * kDepth +
                                  t % kDepth)] = weights[j * k + t];
#endif
}

void IntegerWeights::multiply(const uint8_t* rows, int64_t m, int32_t* out) const {
#if defined(__x86_64__)
  if (!packed_.empty()) {
    const int64_t block = (k_ + kDepth - 1) / kDepth * kDepth * kColumns;
    for (int64_t j = 0; j < n_; j += kColumns) {
      const int8_t* packed = packed_.data() + j / kColumns * block;
      const int64_t columns = std::min(kColumns, n_ - j);
      int64_t i = 0;
      for (; i + 8 <= m; i += 8) multiply_tile<8>(rows + i * k_, k_, packed, n_, columns, out + i * n_ + j);
      for (; i + 2 <= m; i += 2) multiply_tile<2>(rows + i * k_, k_, packed, n_, columns, out + i * n_ + j);
      for (; i < m; ++i) multiply_tile<1>(rows + i * k_, k_, packed, n_, columns, out + i * n_ + j);
    }
    return;
  }
#endif
  multiply_plain(rows, m, weights_, n_, k_, out);
}

PLIMSOLL_CLONES
void multiply_rows(const float* rows, int64_t m, const float* weights, const float* bias, int64_t n, int64_t k_size,
                   float* out) {
  constexpr int64_t kWide = 32, kRows = 4;  // the sums of a tile stay in registers
  for (int64_t first = 0; first < n; first += kWide) {
    const int64_t count = std::min(kWide, n - first);
    int64_t i = 0;
    for (; count == kWide && i + kRows <= m; i += kRows) {
      float sums[kRows][kWide] = {};
      const float* row = rows + i * k_size;
      for (int64_t k = 0; k < k_size; ++k) {
        const float* w = weights + k * n + first;
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t j = 0; j < kWide; ++j) sums[r][j] += row[r * k_size + k] * w[j];
      }
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t j = 0; j < kWide; ++j)
          out[(i + r) * n + first + j] = sums[r][j] + (bias == nullptr ? 0.0F : bias[first + j]);
    }
    for (; i < m; ++i) {
      float sums[kWide] = {};
      const float* row = rows + i * k_size;
      for (int64_t k = 0; k < k_size; ++k)
        for (int64_t j = 0; j < count; ++j) sums[j] += row[k] * weights[k * n + first + j];
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
