// Reads and sums by index, iota and one_hot.
#include "backends/cuda/common/device.cuh"
#include "backends/cuda/common/words.cuh"
#include "backends/cuda/indexed/launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

__device__ int64_t item_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    gather(IndexedAxis x, int64_t count, int64_t words, int64_t total, Word missing, const Word* __restrict__ from,
           const int32_t* __restrict__ ids, Word* __restrict__ to) {
  const int64_t item = item_of_thread();
  if (item >= total) return;
  const int64_t row = item / words, word = item % words;
  const int64_t id = ids[row % count];
  const bool inside = id >= 0 && id < x.size;
  to[item] = inside ? from[(row / count * x.size + id) * words + word] : missing;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    take(IndexedAxis x, int64_t count, int64_t total, Word missing, const Word* __restrict__ from,
         const int32_t* __restrict__ ids, Word* __restrict__ to) {
  const int64_t item = item_of_thread();
  if (item >= total) return;
  const int64_t id = ids[item], outer = item / (count * x.inner);
  const bool inside = id >= 0 && id < x.size;
  to[item] = inside ? from[(outer * x.size + id) * x.inner + item % x.inner] : missing;
}

// One thread per column: neighbouring threads read neighbouring elements, and each column adds in order.
template <typename T>
__global__ void __launch_bounds__(kThreads) take_grad_columns(IndexedAxis dx, int64_t count, const T* __restrict__ dy,
                                                              const int32_t* __restrict__ ids, float* __restrict__ to) {
  const int64_t item = item_of_thread();
  if (item >= dx.outer * dx.inner) return;
  const int64_t outer = item / dx.inner, column = item % dx.inner;
  float* sums = to + outer * dx.size * dx.inner + column;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = (outer * count + k) * dx.inner + column;
    const int id = ids[at];
    if (id >= 0 && id < dx.size) sums[id * dx.inner] += to_float(dy[at]);
  }
}

// One warp per row, 32 elements at a time. Lanes with the same id add up in the order of the lanes, and the first of
// them adds to memory, so the order of additions does not depend on timing.
template <typename T>
__global__ void __launch_bounds__(kThreads) take_grad_rows(IndexedAxis dx, int64_t count, const T* __restrict__ dy,
                                                           const int32_t* __restrict__ ids, float* to) {
  const int64_t row = item_of_thread() / kWarp;
  if (row >= dx.outer) return;  // whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* sums = to + row * dx.size;
  for (int64_t first = 0; first < count; first += kWarp) {
    const int64_t k = first + lane;
    const int id = k < count ? ids[row * count + k] : -1;
    const float value = k < count ? to_float(dy[row * count + k]) : 0.0F;
    const unsigned peers = __match_any_sync(kAllLanes, id);
    const bool leads = lane == __ffs(static_cast<int>(peers)) - 1;
    float sum = 0;
    if (__any_sync(kAllLanes, peers != (1U << lane))) {
      for (int other = 0; other < kWarp; ++other) {
        const float theirs = __shfl_sync(kAllLanes, value, other);
        if ((peers >> other & 1U) != 0) sum += theirs;
      }
    } else {
      sum = value;
    }
    if (leads && id >= 0 && id < dx.size) sums[id] += sum;
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads)
    expand_ids(IndexedAxis y, int64_t count, const int32_t* __restrict__ ids, int32_t* __restrict__ expanded) {
  const int64_t item = item_of_thread();
  if (item >= y.outer * count) return;
  const int id = ids[item % count];
  expanded[item] = id >= 0 && id < y.size ? static_cast<int32_t>(item / count * y.size + id) : -1;
}

__device__ inline void store_index(int32_t* to, int64_t index) {
  *to = static_cast<int32_t>(index);
}
template <typename T>
__device__ inline void store_index(T* to, int64_t index) {
  *to = from_float<T>(static_cast<float>(index));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) iota(IndexedAxis y, T* to) {
  const int64_t item = item_of_thread();
  if (item < y.outer * y.size * y.inner) store_index(to + item, item / y.inner % y.size);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    one_hot(int64_t total, int64_t depth, const int32_t* __restrict__ ids, T* __restrict__ to) {
  const int64_t item = item_of_thread();
  if (item < total) to[item] = from_float<T>(item % depth == ids[item / depth] ? 1.0F : 0.0F);
}

}  // namespace

void launch_gather(const IndexedAxis& x, int64_t count, int element_bytes, uint64_t missing, const void* from,
                   const int32_t* ids, void* to, cudaStream_t stream) {
  int bytes = element_bytes;  // the widest word that divides the slices
  while (bytes < 16 && x.inner * element_bytes % (2 * bytes) == 0 && is_aligned(from, 2 * bytes) &&
         is_aligned(to, 2 * bytes))
    bytes *= 2;
  with_bytes(bytes, [&]<typename Word>() {
    const int64_t words = x.inner * element_bytes / static_cast<int64_t>(sizeof(Word)), total = x.outer * count * words;
    gather<Word><<<blocks_for(total, kThreads), kThreads, 0, stream>>>(
        x, count, words, total, repeated_word<Word>(missing, element_bytes), static_cast<const Word*>(from), ids,
        static_cast<Word*>(to));
    check_launch();
  });
}

void launch_take(const IndexedAxis& x, int64_t count, int element_bytes, uint64_t missing, const void* from,
                 const int32_t* ids, void* to, cudaStream_t stream) {
  const int64_t total = x.outer * count * x.inner;
  with_bytes(element_bytes, [&]<typename Word>() {
    take<Word><<<blocks_for(total, kThreads), kThreads, 0, stream>>>(
        x, count, total, repeated_word<Word>(missing, element_bytes), static_cast<const Word*>(from), ids,
        static_cast<Word*>(to));
    check_launch();
  });
}

void launch_take_grad(const IndexedAxis& dx, int64_t count, Element element, const void* dy, const int32_t* ids,
                      float* to, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    const auto* from = static_cast<const T*>(dy);
    if (dx.inner == 1)
      take_grad_rows<T><<<blocks_for(dx.outer * kWarp, kThreads), kThreads, 0, stream>>>(dx, count, from, ids, to);
    else
      take_grad_columns<T>
          <<<blocks_for(dx.outer * dx.inner, kThreads), kThreads, 0, stream>>>(dx, count, from, ids, to);
    check_launch();
  });
}

void launch_expand_ids(const IndexedAxis& y, int64_t count, const int32_t* ids, int32_t* expanded,
                       cudaStream_t stream) {
  expand_ids<<<blocks_for(y.outer * count, kThreads), kThreads, 0, stream>>>(y, count, ids, expanded);
  check_launch();
}

void launch_iota(const IndexedAxis& y, bool integers, Element element, void* to, cudaStream_t stream) {
  const unsigned blocks = blocks_for(y.outer * y.size * y.inner, kThreads);
  if (integers)
    iota<int32_t><<<blocks, kThreads, 0, stream>>>(y, static_cast<int32_t*>(to));
  else
    with_element(element, [&]<typename T>() { iota<T><<<blocks, kThreads, 0, stream>>>(y, static_cast<T*>(to)); });
  check_launch();
}

void launch_one_hot(int64_t count, int64_t depth, const int32_t* ids, Element element, void* to, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    one_hot<T>
        <<<blocks_for(count * depth, kThreads), kThreads, 0, stream>>>(count * depth, depth, ids, static_cast<T*>(to));
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
