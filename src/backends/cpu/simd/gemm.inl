// One block of a GEMM. B is packed into panels of kNr columns, A into panels of kMr rows (A is read in place if there
// are so few columns that packing it does not pay). A micro-kernel keeps a kMr x kNr tile of C in registers over all of
// k. Panels are padded with zeros, so edge tiles run the same code through a small buffer and give the same bits.

#if defined(__AVX512F__)
using Vec = __m512;
constexpr int64_t kLanes = 16, kMr = 12;
inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v);
}
inline void stream(float* p, Vec v) {
  _mm512_stream_ps(p, v);
}
inline Vec spread(float x) {
  return _mm512_set1_ps(x);
}
inline Vec add_product(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__)
using Vec = __m256;
constexpr int64_t kLanes = 8, kMr = 6;
inline Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v);
}
inline void stream(float* p, Vec v) {
  _mm256_stream_ps(p, v);
}
inline Vec spread(float x) {
  return _mm256_set1_ps(x);
}
inline Vec add_product(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
#else
using Vec = __m128;
constexpr int64_t kLanes = 4, kMr = 6;
inline Vec load(const float* p) {
  return _mm_loadu_ps(p);
}
inline void store(float* p, Vec v) {
  _mm_storeu_ps(p, v);
}
inline void stream(float* p, Vec v) {
  _mm_stream_ps(p, v);
}
inline Vec spread(float x) {
  return _mm_set1_ps(x);
}
inline Vec add_product(Vec a, Vec b, Vec c) {
  return _mm_add_ps(_mm_mul_ps(a, b), c);
}
#endif
inline Vec not_below_zero(Vec x) {  // NaN is preserved
  const Vec zero = spread(0.0F);
  return x < zero ? zero : x;
}
constexpr int64_t kNr = 2 * kLanes;
// Rows to prefetch before packing them: each run is too short for the hardware prefetcher.
constexpr int64_t kAhead = 4;

// tile[i * kNr + j] = sum over k. VECTORS is 1 if at most kLanes columns of the panel are used.
template <int VECTORS>
inline void micro_kernel(int64_t k, const float* const* a, int64_t a_step, const float* b, float* tile) {
  Vec sum[kMr][VECTORS];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) sum[i][v] = spread(0.0F);
  }
  for (int64_t p = 0; p < k; ++p) {
    Vec right[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) right[v] = load(b + p * kNr + v * kLanes);
#pragma GCC unroll 12
    for (int64_t i = 0; i < kMr; ++i) {
      const Vec left = spread(a[i][p * a_step]);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; ++v) sum[i][v] = add_product(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) store(tile + i * kNr + v * kLanes, sum[i][v]);
  }
}

// For packed A: a single pointer with constant offsets leaves the registers to the sums.
template <int VECTORS>
inline void micro_kernel_packed(int64_t k, const float* a, const float* b, float* tile) {
  Vec sum[kMr][VECTORS];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) sum[i][v] = spread(0.0F);
  }
  for (int64_t p = 0; p < k; ++p) {
    Vec right[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) right[v] = load(b + p * kNr + v * kLanes);
#pragma GCC unroll 12
    for (int64_t i = 0; i < kMr; ++i) {
      const Vec left = spread(a[p * kMr + i]);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; ++v) sum[i][v] = add_product(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < kMr; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) store(tile + i * kNr + v * kLanes, sum[i][v]);
  }
}

// The contiguous dimension is read in order across all panels, so that each cache line is touched once. Reading rows
// that are far apart would map them to the same few cache sets, and they would evict each other.
inline void pack_a(const GemmBlock& g) {
  const int64_t whole = g.m / kMr * kMr;
  if (whole < g.m) zero(g.a_panels + whole * g.k, kMr * g.k);
  if (g.a_row == 1) {
    for (int64_t p = 0; p < g.k; ++p) {
      const float* from = g.a + p * g.a_column;
      float* to = g.a_panels + p * kMr;
      for (int64_t first = 0; first < whole; first += kMr) {
        __builtin_prefetch(from + kAhead * g.a_column + first);
        for (int64_t i = 0; i < kMr; ++i) to[first * g.k + i] = from[first + i];
      }
      for (int64_t i = whole; i < g.m; ++i) to[whole * g.k + i - whole] = from[i];
    }
  } else {
    for (int64_t i = 0; i < g.m; ++i) {
      float* to = g.a_panels + i / kMr * kMr * g.k + i % kMr;
      const float* from = g.a + i * g.a_row;
      for (int64_t p = 0; p < g.k; ++p) to[p * kMr] = from[p * g.a_column];
    }
  }
}

inline void pack_b(const GemmBlock& g) {
  const int64_t whole = g.n / kNr * kNr;
  if (whole < g.n) zero(g.b_panels + whole * g.k, kNr * g.k);
  if (g.b_column == 1) {
    for (int64_t p = 0; p < g.k; ++p) {
      const float* from = g.b + p * g.b_row;
      float* to = g.b_panels + p * kNr;
      for (int64_t first = 0; first < whole; first += kNr) {
        __builtin_prefetch(from + kAhead * g.b_row + first);
        for (int64_t j = 0; j < kNr; ++j) to[first * g.k + j] = from[first + j];
      }
      for (int64_t j = whole; j < g.n; ++j) to[whole * g.k + j - whole] = from[j];
    }
    return;
  }
  for (int64_t j = 0; j < g.n; ++j) {
    float* to = g.b_panels + j / kNr * kNr * g.k + j % kNr;
    const float* from = g.b + j * g.b_column;
    for (int64_t p = 0; p < g.k; ++p) to[p * kNr] = from[p * g.b_row];
  }
}

inline void finish_tile(const GemmBlock& g, const float* tile, int64_t row, int64_t column) {
  const int64_t rows = smaller(kMr, g.m - row), columns = smaller(kNr, g.n - column);
  for (int64_t i = 0; i < rows; ++i) {
    float* c = g.c + (row + i) * g.c_row + column;
    const float* t = tile + i * kNr;
    for (int64_t j = 0; j < columns; ++j) {
      float v = t[j];
      if (g.accumulate) v = c[j] + v;
      if (g.bias != nullptr) v += g.bias[column + j];
      if (g.relu) v = v < 0.0F ? 0.0F : v;
      c[j] = v;
    }
  }
}

template <int VECTORS>
inline void micro_tile(const GemmBlock& g, int64_t row, int64_t column, float* tile) {
  const float* b = g.b_panels + column * g.k;
  if (g.pack_a) {
    micro_kernel_packed<VECTORS>(g.k, g.a_panels + row * g.k, b, tile);
    return;
  }
  const float* a[kMr];
  for (int64_t i = 0; i < kMr; ++i) a[i] = g.a + smaller(row + i, g.m - 1) * g.a_row;
  micro_kernel<VECTORS>(g.k, a, g.a_column, b, tile);
}

void gemm_block(const GemmBlock& g) {
  alignas(64) float tile[kMr * kNr];
  pack_b(g);
  if (g.pack_a) pack_a(g);
  for (int64_t row = 0; row < g.m; row += kMr) {
    for (int64_t column = 0; column < g.n; column += kNr) {
      if (g.n - column <= kLanes) {
        micro_tile<1>(g, row, column, tile);
      } else {
        micro_tile<2>(g, row, column, tile);
      }
      finish_tile(g, tile, row, column);
    }
  }
}
