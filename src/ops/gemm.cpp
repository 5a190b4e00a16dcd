#include "ops/gemm.h"

#include <algorithm>
#include <vector>

namespace plimsoll::engine {
namespace {

constexpr int64_t kColumns = 8;  // columns of B processed together
constexpr int64_t kDepth = 256;  // range of k per block: a packed block of A stays in the L1 cache
constexpr int64_t kBlockRows =
    32;  // rows of A packed at a time, so that a panel of B is reused while it is in the cache
constexpr int64_t kChunkColumns = 64;  // columns per task if there are too few rows to distribute

using Four __attribute__((vector_size(32), aligned(8))) = double;

// Computes acc[4][8] += A[4, depth] * B[depth, 8] from packed blocks.
__attribute__((always_inline)) inline void multiply_tile(int64_t depth, const double* a, const double* b, double* acc) {
  Four sum[kGemmRows][2];
  for (int r = 0; r < kGemmRows; ++r)
    for (int64_t h = 0; h < 2; ++h) sum[r][h] = *reinterpret_cast<const Four*>(acc + r * kColumns + h * 4);
  for (int64_t k = 0; k < depth; ++k) {
    const Four low = *reinterpret_cast<const Four*>(b + k * kColumns);
    const Four high = *reinterpret_cast<const Four*>(b + k * kColumns + 4);
    for (int r = 0; r < kGemmRows; ++r) {
      const double x = a[k * kGemmRows + r];
      const Four broadcast = {x, x, x, x};
      sum[r][0] += broadcast * low;
      sum[r][1] += broadcast * high;
    }
  }
  for (int r = 0; r < kGemmRows; ++r)
    for (int64_t h = 0; h < 2; ++h) *reinterpret_cast<Four*>(acc + r * kColumns + h * 4) = sum[r][h];
}

using Tile = void (*)(int64_t, const double*, const double*, double*);

void tile_baseline(int64_t depth, const double* a, const double* b, double* acc) {
  multiply_tile(depth, a, b, acc);
}

#if defined(__x86_64__)
// AVX2 without FMA: wider vectors, but the same rounding as the baseline.
__attribute__((target("avx2"))) void tile_avx2(int64_t depth, const double* a, const double* b, double* acc) {
  multiply_tile(depth, a, b, acc);
}
Tile best_tile() {
  return __builtin_cpu_supports("avx2") ? tile_avx2 : tile_baseline;
}
#else
Tile best_tile() {
  return tile_baseline;
}
#endif

struct Problem {
  int64_t m, n, k;
  const GemmPackA& pack_a;
  const std::vector<double>& packed_b;  // [panel][k][kColumns]
  double* c;
  int64_t c_row_stride;
  Tile tile;
};

// Multiplies rows [row0, row1) of A by panels [panel0, panel1) of B.
void multiply_block(const Problem& p, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
  std::vector<double> a(static_cast<size_t>(kBlockRows * kDepth));
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const int64_t k1 = std::min(p.k, k0 + kDepth);
    std::fill(a.begin(), a.end(), 0.0);
    for (int64_t row = row0; row < row1; row += kGemmRows)
      p.pack_a(row, std::min(kGemmRows, row1 - row), k0, k1, a.data() + (row - row0) * kDepth);
    for (int64_t panel = panel0; panel < panel1; ++panel) {
      const double* b = p.packed_b.data() + (panel * p.k + k0) * kColumns;
      const int64_t columns = std::min(kColumns, p.n - panel * kColumns);
      for (int64_t row = row0; row < row1; row += kGemmRows) {
        const int64_t rows = std::min(kGemmRows, row1 - row);
        double* c = p.c + row * p.c_row_stride + panel * kColumns;
        double acc[kGemmRows * kColumns] = {};
        if (k0 > 0)
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < columns; ++j) acc[r * kColumns + j] = c[r * p.c_row_stride + j];
        p.tile(k1 - k0, a.data() + (row - row0) * kDepth, b, acc);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < columns; ++j) c[r * p.c_row_stride + j] = acc[r * kColumns + j];
      }
    }
  }
}

void pack_panel(const GemmB& b, int64_t column, int64_t columns, int64_t k, double* packed) {
  for (int64_t first = 0; first < k; first += b.period) {
    const double* from = b.data + first / b.period * b.period_stride + column * b.column_stride;
    const int64_t count = std::min(b.period, k - first);
    double* to = packed + first * kColumns;
    if (b.column_stride == 1) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < columns; ++j) to[i * kColumns + j] = from[i * b.row_stride + j];
    } else {  // B is contiguous along k: read it in that order
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = 0; i < count; ++i) to[i * kColumns + j] = from[i * b.row_stride + j * b.column_stride];
    }
    if (count < b.period) break;
  }
}

std::vector<double> pack_b(int64_t n, int64_t k, const GemmB& b) {
  const int64_t panels = (n + kColumns - 1) / kColumns;
  std::vector<double> packed(static_cast<size_t>(panels * k * kColumns));
#pragma omp parallel for schedule(static) if (panels * k > 4096)
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t columns = std::min(kColumns, n - panel * kColumns);
    pack_panel(b, panel * kColumns, columns, k, packed.data() + panel * k * kColumns);
  }
  return packed;
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, const GemmPackA& pack_a, const GemmB& b, double* c, int64_t c_row_stride) {
  static const Tile tile = best_tile();
  const std::vector<double> packed_b = pack_b(n, k, b);
  const Problem p{m, n, k, pack_a, packed_b, c, c_row_stride, tile};
  const int64_t panels = (n + kColumns - 1) / kColumns;
  const int64_t row_blocks = (m + kBlockRows - 1) / kBlockRows;
  const int64_t chunk = row_blocks >= 16 ? panels : kChunkColumns / kColumns;
  const int64_t chunks = (panels + chunk - 1) / chunk;
#pragma omp parallel for schedule(dynamic) if (m * n * k > 32768)
  for (int64_t task = 0; task < row_blocks * chunks; ++task) {
    const int64_t row = task / chunks * kBlockRows, panel = task % chunks * chunk;
    multiply_block(p, row, std::min(m, row + kBlockRows), panel, std::min(panels, panel + chunk));
  }
}

}  // namespace plimsoll::engine
