// How sums are cut into pieces. It depends only on shapes, so that a plan made for a card elsewhere has the workspace
// that is used here. Each piece writes a partial sum to the workspace; the block that finishes last adds the partial
// sums in order.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plimsoll::engine::cuda {

inline constexpr int kSumThreads = 256;
// Enough to fill a large card; more would only make the final addition longer.
inline constexpr int64_t kSumBlocks = 512;

// Sums over the middle axis of [outer, rows, columns]. A block is `lanes` threads wide, over packs of columns.
struct ColumnSums {
  int64_t outer = 1, rows = 1, columns = 1;
  int pack = 1, lanes = 1;
  int64_t tiles = 1;  // tiles of lanes * pack columns
  int64_t chunks = 1, chunk_rows = 1;

  int64_t partials() const { return chunks > 1 ? outer * chunks * columns : 0; }
};

inline ColumnSums plan_column_sums(int64_t outer, int64_t rows, int64_t columns, int64_t element_bytes) {
  ColumnSums plan;
  plan.outer = outer, plan.rows = rows, plan.columns = columns;
  const auto full = static_cast<int>(16 / element_bytes);
  plan.pack = columns % full == 0 ? full : 1;
  const int widest = plan.pack == 1 ? 32 : 16;
  const int64_t packs = columns / plan.pack;
  while (plan.lanes < packs && plan.lanes < widest) plan.lanes *= 2;
  plan.tiles = (packs + plan.lanes - 1) / plan.lanes;
  const int64_t slots = kSumThreads / plan.lanes, worth_a_block = slots * 8;
  const int64_t wanted = std::max<int64_t>(1, kSumBlocks / (plan.tiles * outer));
  plan.chunks = std::clamp<int64_t>((rows + worth_a_block - 1) / worth_a_block, 1, wanted);
  plan.chunk_rows = (rows + plan.chunks - 1) / plan.chunks;
  plan.chunks = (rows + plan.chunk_rows - 1) / plan.chunk_rows;
  return plan;
}

// Number of blocks for a sum over all elements.
inline int64_t total_sum_blocks(int64_t elements) {
  return std::clamp<int64_t>(elements / (int64_t{kSumThreads} * 16), 1, kSumBlocks);
}
inline int64_t total_sum_bytes(int64_t elements) {
  return total_sum_blocks(elements) * static_cast<int64_t>(sizeof(double));
}

// Number of blocks that count the non-finite elements of one tensor; each writes a count of four bytes.
inline int64_t count_blocks(int64_t elements) {
  return std::clamp<int64_t>(elements / (int64_t{kSumThreads} * 64), 1, kSumBlocks);
}

}  // namespace plimsoll::engine::cuda
