// The parts of reductions and sorts as plain data, without graph headers so that .cu files compile quickly.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::engine::cuda {

// Reduces the middle axis of [outer, rows, columns], cut into `parts`, to [outer, parts, columns].
struct AxisStep {
  int64_t outer = 1, rows = 1, columns = 1;
  int64_t parts = 1, part_rows = 1;
  Bytes from = -1, to = -1;  // offsets in the workspace; -1 means the node's own input or output
};

// sort and top_k: rows of n elements. A tile is sorted in shared memory; longer rows are merged from tiles.
inline constexpr int kSortTileElements = 2048;

struct RowSort {
  int64_t rows = 1, n = 1, k = 1;
  bool descending = false;

  // Two buffers of keys if a row has several tiles.
  Bytes workspace() const { return n > kSortTileElements ? 2 * buffer() : 0; }
  Bytes buffer() const { return align_up(8 * rows * n); }
};

}  // namespace plimsoll::engine::cuda
