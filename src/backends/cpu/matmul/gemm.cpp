// Blocked GEMM with packed panels. C is cut into blocks of kRows x kColumns; per block, kDepth terms of k at a time, A
// and B are packed and multiplied by the register-blocked micro-kernel of simd/gemm.inl. If C has too few blocks to
// run in parallel, k is split (split-K) and the partial results are added in order.
#include "backends/cpu/matmul/gemm.h"

#include <algorithm>

#include "backends/cpu/parallel.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kDepth = 256;  // k-extent of a packed panel, chosen so that panels of A stay in the L2 cache
constexpr int64_t kRows = 264;   // rows of a block of C: a multiple of every micro-kernel's row count
constexpr int64_t kColumns = 512;
// Target number of work items; if C has fewer blocks, the k dimension is split (split-K).
constexpr int64_t kItems = 16;
constexpr int64_t kLeastSlice = 1024;
constexpr Bytes kMostPartials = 4 * kMiB;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

struct Cuts {
  int64_t rows, columns, slices;  // rows and columns of a block of C; number of parts of the k dimension
  int64_t row_blocks, column_blocks;
  int64_t items() const { return row_blocks * column_blocks * slices; }
};

Cuts cuts_of(const Product& p) {
  const int64_t mr = simd().gemm_mr, nr = simd().gemm_nr;
  Cuts cuts{std::min(kRows, round_up(p.m, mr)), std::min(kColumns, round_up(p.n, nr)), 1, 0, 0};
  const auto blocks = [&] { return ceil_div(p.m, cuts.rows) * ceil_div(p.n, cuts.columns); };
  // If k is long enough to split, splitting gives enough items. Smaller blocks would pack the other operand more often.
  const bool is_short = p.k < kItems * kLeastSlice;
  while (blocks() < kItems && cuts.columns > 4 * nr && is_short) cuts.columns = round_up(cuts.columns / 2, nr);
  while (blocks() < kItems && cuts.rows > 4 * mr && is_short) cuts.rows = round_up(cuts.rows / 2, mr);
  cuts.row_blocks = ceil_div(p.m, cuts.rows);
  cuts.column_blocks = ceil_div(p.n, cuts.columns);
  const int64_t wanted = std::min(ceil_div(kItems, blocks()), p.k / kLeastSlice);
  cuts.slices = std::clamp<int64_t>(std::min(wanted, kMostPartials / std::max<Bytes>(1, 4 * p.m * p.n)), 1, kItems);
  return cuts;
}

bool packs_a(const Product& p) {
  return p.a_column != 1 || p.n > 2 * simd().gemm_nr;
}

Product block_of(const Product& p, int64_t row, int64_t column, int64_t first_k, const Cuts& cuts, int64_t k) {
  Product block = p;
  block.m = std::min(cuts.rows, p.m - row);
  block.n = std::min(cuts.columns, p.n - column);
  block.k = k;
  block.a += row * p.a_row + first_k * p.a_column;
  block.b += first_k * p.b_row + column * p.b_column;
  block.c += row * p.c_row + column;
  if (block.bias != nullptr) block.bias += column;
  return block;
}

// Adds the partial results of the k-slices in order, then bias and relu.
void add_slices(const Product& p, const float* partials, int64_t slices, int threads) {
  parallel_ranges(threads, p.m, std::max<int64_t>(1, 16384 / p.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* c = p.c + i * p.c_row;
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = p.accumulate ? static_cast<double>(c[j]) : 0.0;
        for (int64_t s = 0; s < slices; ++s) sum += static_cast<double>(partials[(s * p.m + i) * p.n + j]);
        if (p.bias != nullptr) sum += static_cast<double>(p.bias[j]);
        const auto v = static_cast<float>(sum);
        c[j] = p.relu && v < 0.0F ? 0.0F : v;
      }
    }
  });
}

}  // namespace

Bytes serial_workspace(const Product& p) {
  const int64_t depth = std::min(kDepth, p.k);
  const int64_t rows = packs_a(p) ? round_up(std::min(kRows, p.m), simd().gemm_mr) : 0;
  return align_up(4 * depth * rows) + align_up(4 * depth * round_up(std::min(kColumns, p.n), simd().gemm_nr));
}

void multiply_serial(const Product& p, float* workspace) {
  GemmBlock g{};
  g.pack_a = packs_a(p);
  g.a_panels = workspace;
  const int64_t packed_rows = g.pack_a ? round_up(std::min(kRows, p.m), simd().gemm_mr) : 0;
  g.b_panels = workspace + align_up(4 * std::min(kDepth, p.k) * packed_rows) / 4;
  g.a_row = p.a_row;
  g.a_column = p.a_column;
  g.b_row = p.b_row;
  g.b_column = p.b_column;
  g.c_row = p.c_row;
  for (int64_t row = 0; row < p.m; row += kRows) {
    for (int64_t column = 0; column < p.n; column += kColumns) {
      for (int64_t k = 0; k < p.k; k += kDepth) {
        g.m = std::min(kRows, p.m - row);
        g.n = std::min(kColumns, p.n - column);
        g.k = std::min(kDepth, p.k - k);
        g.a = p.a + row * p.a_row + k * p.a_column;
        g.b = p.b + k * p.b_row + column * p.b_column;
        g.c = p.c + row * p.c_row + column;
        g.accumulate = p.accumulate || k > 0;
        const bool last = k + kDepth >= p.k;
        g.bias = last && p.bias != nullptr ? p.bias + column : nullptr;
        g.relu = last && p.relu;
        simd().gemm_block(g);
      }
    }
  }
}

Bytes parallel_workspace(const Product& p, int threads) {
  const Cuts cuts = cuts_of(p);
  Product block = p;
  block.m = std::min(cuts.rows, p.m);
  const Bytes partials = cuts.slices > 1 ? align_up(4 * cuts.slices * p.m * p.n) : 0;
  return partials + threads * serial_workspace(block);
}

void multiply_parallel(const Product& p, int threads, float* workspace) {
  const Cuts cuts = cuts_of(p);
  Product largest = p;
  largest.m = std::min(cuts.rows, p.m);
  const int64_t scratch = serial_workspace(largest) / 4;
  float* partials = workspace;
  float* per_thread = workspace + (cuts.slices > 1 ? align_up(4 * cuts.slices * p.m * p.n) / 4 : 0);
  parallel_items(p.m * p.n * p.k < 65536 ? 1 : threads, cuts.items(), [&](int64_t item, int thread) {
    const int64_t slice = item / (cuts.row_blocks * cuts.column_blocks);
    const int64_t row = item / cuts.column_blocks % cuts.row_blocks * cuts.rows;
    const int64_t column = item % cuts.column_blocks * cuts.columns;
    const int64_t begin = p.k * slice / cuts.slices, end = p.k * (slice + 1) / cuts.slices;
    Product block = block_of(p, row, column, begin, cuts, end - begin);
    if (cuts.slices > 1) {
      block.c = partials + (slice * p.m + row) * p.n + column;
      block.c_row = p.n;
      block.bias = nullptr;
      block.relu = block.accumulate = false;
    }
    multiply_serial(block, per_thread + thread * scratch);
  });
  if (cuts.slices > 1) add_slices(p, partials, cuts.slices, threads);
}

}  // namespace plimsoll::engine::cpu
