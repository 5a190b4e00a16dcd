// Sorts of rows. An element and its index are one 64-bit key whose order is that of the op, so all keys differ and the
// sort is stable. A block sorts a tile in shared memory (bitonic). Longer rows are merged: each key finds its place
// among the keys of the neighbouring run by bisection.
#include <utility>

#include "backends/cuda/axis/launch.h"
#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

namespace {

using Key = unsigned long long;
constexpr int kThreads = 256;
constexpr Key kLast = ~Key{0};

// Orders floats as unsigned integers; NaNs are last in either direction, and -0 equals 0.
__device__ Key key_of(float value, int64_t index, bool descending) {
  unsigned order = 0xffffffffU;
  if (!isnan(value)) {
    const unsigned bits = __float_as_uint(value == 0.0F ? 0.0F : value);
    order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
    if (descending) order = ~order;
  }
  return Key{order} << 32 | static_cast<unsigned>(index);
}

template <typename T>
__device__ void store_result(const RowSort& s, int64_t row, int64_t place, Key key, const T* x, T* values,
                             int32_t* index) {
  if (place >= s.k) return;
  const auto from = static_cast<int32_t>(key & 0xffffffffU);
  index[row * s.k + place] = from;
  values[row * s.k + place] = x[row * s.n + from];
}

// Sorts tile blockIdx.x % tiles of row blockIdx.x / tiles. `size` is a power of two and not less than the tile. A row
// of one tile is finished; other tiles are written to `keys`.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sort_tiles(RowSort s, int64_t tiles, int size, const T* __restrict__ x, T* __restrict__ values,
               int32_t* __restrict__ index, Key* __restrict__ keys) {
  __shared__ Key tile[kSortTileElements];
  const int64_t row = blockIdx.x / tiles, first = blockIdx.x % tiles * kSortTileElements;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads)
    tile[i] = first + i < s.n ? key_of(to_float(x[row * s.n + first + i]), first + i, s.descending) : kLast;
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += kThreads) {
        const int low = pair / distance * 2 * distance + pair % distance, high = low + distance;
        const bool ascending = (low & run) == 0;
        const Key a = tile[low], b = tile[high];
        if ((a > b) == ascending) {
          tile[low] = b;
          tile[high] = a;
        }
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < size && first + i < s.n; i += kThreads) {
    if (tiles == 1)
      store_result(s, row, i, tile[i], x, values, index);
    else
      keys[row * s.n + first + i] = tile[i];
  }
}

// Merges neighbouring runs of `run` keys. The last merge of a row stores the results.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    merge_runs(RowSort s, int64_t run, bool last, const Key* __restrict__ from, Key* __restrict__ to,
               const T* __restrict__ x, T* __restrict__ values, int32_t* __restrict__ index) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= s.rows * s.n) return;
  const int64_t row = item / s.n, at = item % s.n;
  const Key* keys = from + row * s.n;
  const Key key = keys[at];
  const int64_t pair = at / (2 * run) * 2 * run, mine = at / run * run;
  const int64_t other = mine == pair ? pair + run : pair;
  int64_t low = min(other, s.n), high = min(other + run, s.n);
  const int64_t begin = low;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  const int64_t place = pair + (at - mine) + (low - begin);
  if (last)
    store_result(s, row, place, key, x, values, index);
  else
    to[row * s.n + place] = key;
}

}  // namespace

void launch_sort(const RowSort& sort, Element element, const void* x, void* values, int32_t* index, void* workspace,
                 cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(values);
    const int64_t tiles = (sort.n + kSortTileElements - 1) / kSortTileElements;
    int size = 2;
    while (size < kSortTileElements && size < sort.n) size *= 2;
    auto* keys = static_cast<Key*>(workspace);
    auto* other = reinterpret_cast<Key*>(static_cast<char*>(workspace) + sort.buffer());
    sort_tiles<T>
        <<<static_cast<unsigned>(sort.rows * tiles), kThreads, 0, stream>>>(sort, tiles, size, from, to, index, keys);
    for (int64_t run = kSortTileElements; run < sort.n; run *= 2) {
      merge_runs<T><<<blocks_for(sort.rows * sort.n, kThreads), kThreads, 0, stream>>>(sort, run, 2 * run >= sort.n,
                                                                                       keys, other, from, to, index);
      std::swap(keys, other);
    }
    check_launch();
  });
}

}  // namespace plimsoll::engine::cuda
