// resample and adaptive_max_pool along one dimension, and their gradients. A small kernel writes the table of weights
// (the same as ops/resample_table.cpp) to the workspace; then each thread computes a pack of one position of the
// result.
#include <algorithm>
#include <cfloat>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/move/resample_launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

struct Table {
  int *begin, *count;
  float* weights;  // `taps` per output position
  int taps;

  Table(const ResampleLines& l, void* space)
      : begin(static_cast<int*>(space)),
        count(begin + l.output),
        weights(reinterpret_cast<float*>(count + l.output)),
        taps(l.taps) {}
};

struct Window {
  int begin, end;
};

// Keras computes the bounds in float32, and has windows of two sizes.
__device__ Window adaptive_window(int at, int input, int output) {
  const auto in = static_cast<float>(input), out = static_cast<float>(output);
  const int small = (input + output - 1) / output;
  const int begin = min(static_cast<int>(floorf(__fdiv_rn(__fmul_rn(static_cast<float>(at), in), out))), input - 1);
  const int end = min(static_cast<int>(ceilf(__fdiv_rn(__fmul_rn(static_cast<float>(at + 1), in), out))), input);
  return {begin, min(begin + (end - begin == small + 1 ? small + 1 : small), input)};
}

__device__ float cubic_weight(float x) {
  constexpr float kA = -0.5F;
  if (x <= 1.0F) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
}

__device__ float lanczos_weight(float distance, float radius) {
  constexpr float kPi = 3.14159265359F;
  const float x = fabsf(distance);
  if (x > radius) return 0;
  if (x <= 1e-3F) return 1;
  return radius * sinf(kPi * x) * sinf(kPi * x / radius) / (kPi * kPi * x * x);
}

__global__ void fill_table(ResampleLines l, ResampleMethod method, Table table) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= l.output) return;
  float* weights = table.weights + static_cast<int64_t>(at) * table.taps;
  Window window{};
  if (method == ResampleMethod::kAverage) {
    window = adaptive_window(at, l.input, l.output);
    for (int i = 0; i < window.end - window.begin; ++i)
      weights[i] = 1.0F / static_cast<float>(window.end - window.begin);
  } else if (method == ResampleMethod::kBicubic) {
    const float scale = __fdiv_rn(static_cast<float>(l.input), static_cast<float>(l.output));
    const float place = __fadd_rn(__fmul_rn(static_cast<float>(at) + 0.5F, scale), -0.5F);
    const int floor = static_cast<int>(floorf(place));
    const float delta = rintf((place - static_cast<float>(floor)) * 1024.0F) / 1024.0F;
    window = {max(floor - 1, 0), min(floor + 3, l.input)};
    for (int i = window.begin; i < window.end; ++i) {
      const int tap = i - (floor - 1);
      const float distance = tap == 0 ? 1 + delta : tap == 1 ? delta : tap == 2 ? 1 - delta : 2 - delta;
      weights[i - window.begin] = cubic_weight(distance);
    }
  } else {
    const float radius = method == ResampleMethod::kLanczos3 ? 3.0F : 5.0F;
    const float scale = __fdiv_rn(static_cast<float>(l.output), static_cast<float>(l.input));
    const float place = __fmul_rn(static_cast<float>(at) + 0.5F, __fdiv_rn(1.0F, scale));
    window.begin = min(max(static_cast<int>(ceilf(place - radius - 0.5F)), 0), l.input - 1);
    window.end = min(max(static_cast<int>(floorf(place + radius - 0.5F)), 0), l.input - 1) + 1;
    for (int i = window.begin; i < window.end; ++i)
      weights[i - window.begin] = lanczos_weight(static_cast<float>(i) + 0.5F - place, radius);
  }
  table.begin[at] = window.begin;
  table.count[at] = window.end - window.begin;
  if (method == ResampleMethod::kAverage) return;
  float sum = 0;
  for (int i = 0; i < window.end - window.begin; ++i) sum += weights[i];
  if (fabsf(sum) < 1000.0F * FLT_MIN) return;
  const float factor = 1.0F / sum;
  for (int i = 0; i < window.end - window.begin; ++i) weights[i] *= factor;
}

// Maps a thread to (line, position, pack) of the tensor that is written.
struct Positions {
  Divider packs, positions;
  uint32_t items = 0;  // over all lines of one launch

  struct Place {
    int64_t line;
    int at, pack;
  };
  __device__ Place place(uint32_t item, int64_t first_line) const {
    uint32_t position = packs.split(item);
    const uint32_t line = positions.split(position);
    return {first_line + line, static_cast<int>(position), static_cast<int>(item)};
  }
};

// The first output position whose window ends after `at`. Windows move to the right, so their ends are sorted.
template <typename EndOf>
__device__ int first_covering(int at, int outputs, EndOf end_of) {
  int low = 0, high = outputs;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (end_of(middle) > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

template <typename T, int N>
__device__ void add_to(float (&sum)[N], float weight, const Pack<T, N>& pack) {
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] += weight * to_float(pack.v[k]);
}

template <typename T, int N>
__device__ void store(T* to, const float (&sum)[N]) {
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = from_float<T>(sum[k]);
  store_pack(to, result);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) resample(ResampleLines l, Positions positions, int64_t first_line,
                                                     Table table, const T* __restrict__ x, T* __restrict__ y) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= positions.items) return;
  const auto p = positions.place(item, first_line);
  const T* from = x + (p.line * l.input + table.begin[p.at]) * l.inner + p.pack * N;
  const float* weights = table.weights + static_cast<int64_t>(p.at) * table.taps;
  float sum[N] = {};
  const int count = table.count[p.at];
  for (int i = 0; i < count; ++i) add_to(sum, weights[i], load_pack<N>(from + i * l.inner));
  store(y + (p.line * l.output + p.at) * l.inner + p.pack * N, sum);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) resample_grad(ResampleLines l, Positions positions, int64_t first_line,
                                                          Table table, const T* __restrict__ dy, T* __restrict__ dx) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= positions.items) return;
  const auto p = positions.place(item, first_line);
  float sum[N] = {};
  int o = first_covering(p.at, l.output, [&](int i) { return table.begin[i] + table.count[i]; });
  for (; o < l.output && table.begin[o] <= p.at; ++o) {
    const float weight = table.weights[static_cast<int64_t>(o) * table.taps + p.at - table.begin[o]];
    add_to(sum, weight, load_pack<N>(dy + (p.line * l.output + o) * l.inner + p.pack * N));
  }
  store(dx + (p.line * l.input + p.at) * l.inner + p.pack * N, sum);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    adaptive_max(ResampleLines l, Positions positions, int64_t first_line, const T* __restrict__ x, T* __restrict__ y,
                 int32_t* __restrict__ index) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= positions.items) return;
  const auto p = positions.place(item, first_line);
  const Window window = adaptive_window(p.at, l.input, l.output);
  const T* from = x + p.line * l.input * l.inner + p.pack * N;
  Pack<T, N> best = load_pack<N>(from + window.begin * l.inner);
  Pack<int32_t, N> at;
#pragma unroll
  for (int k = 0; k < N; ++k) at.v[k] = window.begin;
  for (int i = window.begin + 1; i < window.end; ++i) {
    const auto pack = load_pack<N>(from + i * l.inner);
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (to_float(pack.v[k]) > to_float(best.v[k])) {
        best.v[k] = pack.v[k];
        at.v[k] = i;
      }
  }
  const int64_t to = (p.line * l.output + p.at) * l.inner + p.pack * N;
  store_pack(y + to, best);
  store_pack(index + to, at);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    adaptive_max_grad(ResampleLines l, Positions positions, int64_t first_line, const T* __restrict__ dy,
                      const int32_t* __restrict__ index, T* __restrict__ dx) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= positions.items) return;
  const auto p = positions.place(item, first_line);
  float sum[N] = {};
  int o = first_covering(p.at, l.output, [&](int i) { return adaptive_window(i, l.input, l.output).end; });
  for (; o < l.output && adaptive_window(o, l.input, l.output).begin <= p.at; ++o) {
    const int64_t from = (p.line * l.output + o) * l.inner + p.pack * N;
    const auto gradient = load_pack<N>(dy + from);
    const auto at = load_pack<N>(index + from);
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (at.v[k] == p.at) sum[k] += to_float(gradient.v[k]);
  }
  store(dx + (p.line * l.input + p.at) * l.inner + p.pack * N, sum);
}

// Calls launch(blocks, positions, first line) with `size` positions per line, for as many lines at a time as 31-bit
// indices allow.
template <int N, typename F>
void for_lines(const ResampleLines& l, int size, F launch) {
  const int64_t packs = l.inner / N, a_line = packs * size;
  const int64_t at_once = std::max<int64_t>(1, ((int64_t{1} << 31) - 1 - kThreads) / a_line);
  for (int64_t first = 0; first < l.outer; first += at_once) {
    const int64_t items = std::min(at_once, l.outer - first) * a_line;
    const Positions positions{Divider(packs), Divider(size), static_cast<uint32_t>(items)};
    launch(blocks_for(items, kThreads), positions, first);
    check_launch();
  }
}

// Packs of 16 bytes if the elements behind the dimension divide into them.
template <typename F>
void with_inner_packs(const ResampleLines& l, Element element, F f) {
  with_element(element, [&]<typename T>() {
    if (l.inner % kPack<T> == 0)
      f.template operator()<T, kPack<T>>();
    else
      f.template operator()<T, 1>();
  });
}

Table filled_table(const ResampleLines& l, ResampleMethod method, void* space, cudaStream_t stream) {
  const Table table(l, space);
  fill_table<<<blocks_for(l.output, kThreads), kThreads, 0, stream>>>(l, method, table);
  check_launch();
  return table;
}

}  // namespace

void launch_resample(const ResampleLines& l, ResampleMethod method, Element element, const void* x, void* y,
                     void* table, cudaStream_t stream) {
  const Table filled = filled_table(l, method, table, stream);
  with_inner_packs(l, element, [&]<typename T, int N>() {
    for_lines<N>(l, l.output, [&](unsigned blocks, const Positions& positions, int64_t first) {
      resample<T, N>
          <<<blocks, kThreads, 0, stream>>>(l, positions, first, filled, static_cast<const T*>(x), static_cast<T*>(y));
    });
  });
}

void launch_resample_grad(const ResampleLines& l, ResampleMethod method, Element element, const void* dy, void* dx,
                          void* table, cudaStream_t stream) {
  const Table filled = filled_table(l, method, table, stream);
  with_inner_packs(l, element, [&]<typename T, int N>() {
    for_lines<N>(l, l.input, [&](unsigned blocks, const Positions& positions, int64_t first) {
      resample_grad<T, N><<<blocks, kThreads, 0, stream>>>(l, positions, first, filled, static_cast<const T*>(dy),
                                                           static_cast<T*>(dx));
    });
  });
}

void launch_adaptive_max(const ResampleLines& l, Element element, const void* x, void* y, int32_t* index,
                         cudaStream_t stream) {
  with_inner_packs(l, element, [&]<typename T, int N>() {
    for_lines<N>(l, l.output, [&](unsigned blocks, const Positions& positions, int64_t first) {
      adaptive_max<T, N>
          <<<blocks, kThreads, 0, stream>>>(l, positions, first, static_cast<const T*>(x), static_cast<T*>(y), index);
    });
  });
}

void launch_adaptive_max_grad(const ResampleLines& l, Element element, const void* dy, const int32_t* index, void* dx,
                              cudaStream_t stream) {
  with_inner_packs(l, element, [&]<typename T, int N>() {
    for_lines<N>(l, l.input, [&](unsigned blocks, const Positions& positions, int64_t first) {
      adaptive_max_grad<T, N>
          <<<blocks, kThreads, 0, stream>>>(l, positions, first, static_cast<const T*>(dy), index, static_cast<T*>(dx));
    });
  });
}

}  // namespace plimsoll::engine::cuda
