// Reductions of the middle axis of [outer, rows, columns]: largest, smallest, product, and the index of the largest.
//
// A block is `lanes` columns wide and has kThreads / lanes slots, which take the rows in turn. With one column,
// neighbouring slots read neighbouring elements; short rows take one warp each.
#include <type_traits>

#include "backends/cuda/axis/launch.h"
#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

// A reducer starts at start(), takes an element with its row, and joins two partial results. Rows ascend within a
// thread, but not between the results that are joined.
struct Largest {
  using State = float;
  __device__ static float start() { return -INFINITY; }
  __device__ static float of(float v, int) { return v; }
  __device__ static float join(float a, float b) { return b > a || isnan(b) ? b : a; }
};
struct Smallest {
  using State = float;
  __device__ static float start() { return INFINITY; }
  __device__ static float of(float v, int) { return v; }
  __device__ static float join(float a, float b) { return b < a || isnan(b) ? b : a; }
};
struct Product {
  using State = float;
  __device__ static float start() { return 1; }
  __device__ static float of(float v, int) { return v; }
  __device__ static float join(float a, float b) { return a * b; }
};

struct Indexed {
  float value;
  int row;
};
template <bool kLargest>
struct ArgExtreme {
  using State = Indexed;
  __device__ static Indexed start() { return {0, INT32_MAX}; }  // no row yet
  __device__ static Indexed of(float v, int row) { return {kLargest ? v : -v, row}; }
  __device__ static Indexed join(Indexed a, Indexed b) {
    if (a.row == INT32_MAX) return b;
    if (b.row == INT32_MAX) return a;
    return b.value > a.value || (b.value == a.value && b.row < a.row) ? b : a;
  }
};

__device__ inline float shuffled(float state, int offset) {
  return __shfl_down_sync(kAllLanes, state, offset);
}
__device__ inline Indexed shuffled(Indexed state, int offset) {
  return {__shfl_down_sync(kAllLanes, state.value, offset), __shfl_down_sync(kAllLanes, state.row, offset)};
}

template <typename To>
__device__ inline void store_result(To* to, float state) {
  *to = from_float<To>(state);
}
__device__ inline void store_result(int32_t* to, Indexed state) {
  *to = state.row;
}

template <typename Reducer, typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    reduce_tile(AxisStep step, int lanes, int64_t tiles, const From* __restrict__ x, To* __restrict__ y) {
  using State = typename Reducer::State;
  __shared__ State shared[kThreads];
  const int lane = static_cast<int>(threadIdx.x) % lanes, slot = static_cast<int>(threadIdx.x) / lanes;
  const int slots = kThreads / lanes;
  int64_t block = blockIdx.x;
  const int64_t column = block % tiles * lanes + lane;
  block /= tiles;
  const int64_t part = block % step.parts, outer = block / step.parts;
  const bool inside = column < step.columns;
  State state = Reducer::start();
  if (inside) {
    const int64_t begin = part * step.part_rows, end = min(begin + step.part_rows, step.rows);
    const From* from = x + outer * step.rows * step.columns + column;
#pragma unroll 4
    for (int64_t row = begin + slot; row < end; row += slots)
      state = Reducer::join(state, Reducer::of(to_float(from[row * step.columns]), static_cast<int>(row)));
  }
  shared[threadIdx.x] = state;
  for (int half = slots / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slot < half) shared[threadIdx.x] = Reducer::join(shared[threadIdx.x], shared[threadIdx.x + half * lanes]);
  }
  if (slot == 0 && inside) store_result(y + (outer * step.parts + part) * step.columns + column, shared[lane]);
}

// One warp per row of neighbouring elements.
template <typename Reducer, typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    reduce_short_rows(int64_t count, int64_t length, const From* __restrict__ x, To* __restrict__ y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= count) return;  // whole warps
  auto state = Reducer::start();
  for (int64_t i = threadIdx.x % kWarp; i < length; i += kWarp)
    state = Reducer::join(state, Reducer::of(to_float(x[row * length + i]), static_cast<int>(i)));
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) state = Reducer::join(state, shuffled(state, offset));
  if (threadIdx.x % kWarp == 0) store_result(y + row, state);
}

template <typename Reducer, typename From, typename To>
void reduce(const AxisStep& step, const From* x, To* y, cudaStream_t stream) {
  constexpr int64_t kShort = 1024;
  if (step.columns == 1 && step.parts == 1 && step.rows <= kShort) {
    reduce_short_rows<Reducer>
        <<<blocks_for(step.outer, kThreads / kWarp), kThreads, 0, stream>>>(step.outer, step.rows, x, y);
    return check_launch();
  }
  int lanes = 1;
  while (lanes < step.columns && lanes < kWarp) lanes *= 2;
  const int64_t tiles = (step.columns + lanes - 1) / lanes;
  reduce_tile<Reducer>
      <<<static_cast<unsigned>(step.outer * step.parts * tiles), kThreads, 0, stream>>>(step, lanes, tiles, x, y);
  check_launch();
}

}  // namespace

void launch_axis_step(const AxisStep& step, Extreme kind, Element from, const void* x, Element to, void* y,
                      cudaStream_t stream) {
  with_element(from, [&]<typename From>() {
    with_element(to, [&]<typename To>() {
      constexpr bool kGoes = std::is_same_v<From, To> || std::is_same_v<From, float> || std::is_same_v<To, float>;
      if constexpr (kGoes) {
        const auto* source = static_cast<const From*>(x);
        auto* result = static_cast<To*>(y);
        if (kind == Extreme::kMax) return reduce<Largest>(step, source, result, stream);
        if (kind == Extreme::kMin) return reduce<Smallest>(step, source, result, stream);
        reduce<Product>(step, source, result, stream);
      }
    });
  });
}

void launch_arg(int64_t outer, int64_t rows, int64_t columns, bool largest, Element element, const void* x,
                int32_t* index, cudaStream_t stream) {
  const AxisStep step{outer, rows, columns, 1, rows};
  with_element(element, [&]<typename T>() {
    const auto* source = static_cast<const T*>(x);
    if (largest)
      reduce<ArgExtreme<true>>(step, source, index, stream);
    else
      reduce<ArgExtreme<false>>(step, source, index, stream);
  });
}

}  // namespace plimsoll::engine::cuda
