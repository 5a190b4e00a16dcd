// Transpositions through shared memory, writes of strided views, and paddings with their gradient.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/common/words.cuh"
#include "backends/cuda/move/strided_launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTileColumns = 32, kTileRows = 8;

// Narrow elements take larger tiles, so that a row of a tile is at least two sectors of memory.
template <typename Word>
constexpr int kTile = sizeof(Word) <= 2 ? 64 : 32;

// Reads rows of x and writes rows of y, both with neighbouring threads at neighbouring elements.
template <typename Word>
__global__ void __launch_bounds__(kTileColumns* kTileRows)
    transpose_tiles(const __grid_constant__ TiledTranspose t, int64_t row_tiles, int64_t column_tiles,
                    const Word* __restrict__ x, Word* __restrict__ y) {
  __shared__ Word words[kTile<Word>][kTile<Word> + 1];
  int64_t block = blockIdx.x;
  const int64_t column = block % column_tiles * kTile<Word>;
  block /= column_tiles;
  const int64_t row = block % row_tiles * kTile<Word>;
  block /= row_tiles;
  int64_t from = 0, to = 0;
  for (int i = 0; i < t.axes; ++i) {  // the innermost axis is first
    const int64_t index = block % t.sizes[i];
    block /= t.sizes[i];
    from += index * t.from[i];
    to += index * t.to[i];
  }
  const auto each = [](auto f) {
#pragma unroll
    for (int i = 0; i < kTile<Word>; i += kTileRows)
#pragma unroll
      for (int j = 0; j < kTile<Word>; j += kTileColumns)
        f(i + static_cast<int>(threadIdx.y), j + static_cast<int>(threadIdx.x));
  };
  each([&](int i, int j) {
    if (column + i < t.columns && row + j < t.rows) words[i][j] = x[from + (column + i) * t.column_stride + row + j];
  });
  __syncthreads();
  each([&](int i, int j) {
    if (row + i < t.rows && column + j < t.columns) y[to + (row + i) * t.row_stride + column + j] = words[j][i];
  });
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    write_view(const __grid_constant__ ViewAxes view, const Word* __restrict__ y, Word* __restrict__ x) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= view.elements) return;
  int64_t rest = i, at = 0;
  for (int axis = view.axes - 1; axis >= 0; --axis) {
    at += rest % view.sizes[axis] * view.strides[axis];
    rest /= view.sizes[axis];
  }
  x[at] = y[i];
}

// The index of x that index i of a padded axis shows, or -1 for the constant.
__device__ int64_t shown_by(const PadAxes& p, int axis, int64_t i) {
  const int64_t n = p.extent[axis];
  i -= p.before[axis];
  if (i >= 0 && i < n) return i;
  switch (p.mode) {
    case PadAxes::Mode::kReflect:
      return i < 0 ? -i : 2 * n - 2 - i;
    case PadAxes::Mode::kSymmetric:
      return i < 0 ? -i - 1 : 2 * n - 1 - i;
    case PadAxes::Mode::kEdge:
      return i < 0 ? 0 : n - 1;
    default:
      return -1;
  }
}

template <typename Word>
__global__ void __launch_bounds__(kThreads) pad(const __grid_constant__ PadAxes p, int64_t words, int64_t total,
                                                Word constant, const Word* __restrict__ x, Word* __restrict__ y) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= total) return;
  int64_t rest = item / words, at = 0, stride = 1;
  bool inside = true;
  for (int axis = p.axes - 1; axis >= 0; --axis) {
    const int64_t size = p.padded[axis], from = shown_by(p, axis, rest % size);
    rest /= size;
    inside = inside && from >= 0;
    at += from * stride;
    stride *= p.extent[axis];
  }
  y[item] = inside ? x[at * words + item % words] : constant;
}

// How many indices of the padded axis show index i of x: i itself, then those before and those behind it.
__device__ int shown_times(const PadAxes& p, int axis, int64_t i, bool& low, bool& high) {
  const int64_t n = p.extent[axis], before = p.before[axis], after = p.after[axis];
  if (p.mode == PadAxes::Mode::kEdge) {
    low = i == 0;
    high = i == n - 1;
    return 1 + static_cast<int>((low ? before : 0) + (high ? after : 0));
  }
  low = high = false;
  if (p.mode == PadAxes::Mode::kReflect) {
    low = i >= 1 && i <= before;
    high = i <= n - 2 && i >= n - 1 - after;
  }
  if (p.mode == PadAxes::Mode::kSymmetric) {
    low = i < before;
    high = i >= n - after;
  }
  return 1 + (low ? 1 : 0) + (high ? 1 : 0);
}

// The k-th of them.
__device__ int64_t shown_at(const PadAxes& p, int axis, int64_t i, bool low, int k) {
  const int64_t n = p.extent[axis], before = p.before[axis];
  if (k == 0) return before + i;
  if (p.mode == PadAxes::Mode::kEdge) {
    const int64_t lows = low ? before : 0;
    return k <= lows ? k - 1 : before + n + (k - 1 - lows);
  }
  const bool is_low = low && k == 1;
  if (p.mode == PadAxes::Mode::kReflect) return is_low ? before - i : before + 2 * (n - 1) - i;
  return is_low ? before - 1 - i : before + 2 * n - 1 - i;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    pad_grad(const __grid_constant__ PadAxes p, int64_t total, const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= total) return;
  int64_t rest = item / p.inner;
  int64_t index[kStridedAxes];
  int times[kStridedAxes];
  bool lows[kStridedAxes];
  int64_t combinations = 1;
#pragma unroll
  for (int axis = kStridedAxes - 1; axis >= 0; --axis) {
    if (axis >= p.axes) continue;
    bool high;
    index[axis] = rest % p.extent[axis];
    rest /= p.extent[axis];
    times[axis] = shown_times(p, axis, index[axis], lows[axis], high);
    combinations *= times[axis];
  }
  float sum = 0;
  for (int64_t c = 0; c < combinations; ++c) {
    int64_t left = c, at = 0, stride = 1;
#pragma unroll
    for (int axis = kStridedAxes - 1; axis >= 0; --axis) {
      if (axis >= p.axes) continue;
      at += shown_at(p, axis, index[axis], lows[axis], static_cast<int>(left % times[axis])) * stride;
      left /= times[axis];
      stride *= p.padded[axis];
    }
    sum += to_float(dy[at * p.inner + item % p.inner]);
  }
  dx[item] = from_float<T>(sum);
}

}  // namespace

void launch_tiled_transpose(const TiledTranspose& tiled, int element_bytes, const void* x, void* y,
                            cudaStream_t stream) {
  with_bytes(element_bytes, [&]<typename Word>() {
    const int64_t row_tiles = (tiled.rows + kTile<Word> - 1) / kTile<Word>;
    const int64_t column_tiles = (tiled.columns + kTile<Word> - 1) / kTile<Word>;
    int64_t blocks = row_tiles * column_tiles;
    for (int i = 0; i < tiled.axes; ++i) blocks *= tiled.sizes[i];
    transpose_tiles<Word><<<static_cast<unsigned>(blocks), dim3(kTileColumns, kTileRows), 0, stream>>>(
        tiled, row_tiles, column_tiles, static_cast<const Word*>(x), static_cast<Word*>(y));
    check_launch();
  });
}

void launch_write_view(const ViewAxes& view, int element_bytes, const void* y, void* x, cudaStream_t stream) {
  with_bytes(element_bytes, [&]<typename Word>() {
    write_view<Word><<<blocks_for(view.elements, kThreads), kThreads, 0, stream>>>(view, static_cast<const Word*>(y),
                                                                                   static_cast<Word*>(x));
    check_launch();
  });
}

void launch_pad(const PadAxes& padding, int element_bytes, uint64_t pattern, const void* x, void* y,
                cudaStream_t stream) {
  int64_t rows = 1;
  for (int i = 0; i < padding.axes; ++i) rows *= padding.padded[i];
  int bytes = element_bytes;  // the widest word that divides the runs of elements
  while (bytes < 16 && padding.inner * element_bytes % (2 * bytes) == 0 && is_aligned(x, 2 * bytes) &&
         is_aligned(y, 2 * bytes))
    bytes *= 2;
  with_bytes(bytes, [&]<typename Word>() {
    const int64_t words = padding.inner * element_bytes / static_cast<int64_t>(sizeof(Word));
    pad<Word><<<blocks_for(rows * words, kThreads), kThreads, 0, stream>>>(
        padding, words, rows * words, repeated_word<Word>(pattern, element_bytes), static_cast<const Word*>(x),
        static_cast<Word*>(y));
    check_launch();
  });
}

void launch_pad_grad(const PadAxes& padding, Element element, const void* dy, void* dx, cudaStream_t stream) {
  int64_t total = padding.inner;
  for (int i = 0; i < padding.axes; ++i) total *= padding.extent[i];
  with_element(element, [&]<typename T>() {
    pad_grad<T><<<blocks_for(total, kThreads), kThreads, 0, stream>>>(padding, total, static_cast<const T*>(dy),
                                                                      static_cast<T*>(dx));
    check_launch();
  });
}

}  // namespace plimsoll::engine::cuda
