// What surrounds the loops over time: packing weights, gathering operands by step, and writing gradients back.
#include "backends/cuda/recurrent/loop.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kPassThreads = 256;

// The index of a thread among those of all blocks along x.
__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * kPassThreads + threadIdx.x;
}

template <typename T>
__global__ void pack(LoopShape s, const T* __restrict__ weights, T* __restrict__ packed, bool back, int64_t packs) {
  constexpr int kP = kTerms<T>;
  const int64_t index = thread_index();
  if (index >= packs) return;
  const int lane = static_cast<int>(index % kWarp), k_blocks = s.padded / s.k_block;
  int64_t rest = index / kWarp;
  int gate, k_block;
  if (back) {
    const auto block = static_cast<int>(rest % (s.gates * k_blocks));
    gate = block / k_blocks, k_block = block % k_blocks;
    rest /= s.gates * k_blocks;
  } else {
    gate = static_cast<int>(rest % s.gates), k_block = static_cast<int>(rest / s.gates % k_blocks);
    rest /= static_cast<int64_t>(s.gates) * k_blocks;
  }
  const int column = static_cast<int>(rest) * kTile + lane / 4;
  Pack<T, kP> made;
#pragma unroll
  for (int e = 0; e < kP; ++e) {
    const int term = k_block * s.k_block + lane % 4 * kP + e;
    const int from = back ? column : term, to = back ? term : column;
    float value = 0;
    if (from < s.u && to < s.u) value = to_float(weights[static_cast<int64_t>(from) * s.gates * s.u + gate * s.u + to]);
    if (sizeof(T) == 4 && s.matrix) value = __uint_as_float(as_tf32(__float_as_uint(value)));
    made.v[e] = from_float<T>(value);
  }
  store_pack(packed + index * kP, made);
}

template <typename T>
__global__ void first_steps(LoopShape s, int* first) {
  const auto n = static_cast<int>(blockIdx.x);
  int least = s.t;
  for (int step = static_cast<int>(threadIdx.x); step < s.t && least == s.t; step += kWarp)
    if (is_unmasked<T>(s, n, step)) least = step;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) least = min(least, __shfl_xor_sync(kAllLanes, least, offset));
  if (threadIdx.x == 0) first[n] = least;
}

template <typename T>
__global__ void begin_states(LoopForward f) {
  const LoopShape& s = f.shape;
  const int64_t index = thread_index();
  if (index >= static_cast<int64_t>(s.n) * s.u) return;
  const auto n = static_cast<int>(index / s.u), j = static_cast<int>(index % s.u);
  const LoopRecord& record = f.record;
  const int64_t from = n * record.start_row + j;
  const float h = to_float(static_cast<const T*>(record.start_h)[from]);
  f.state_h[index] = h;
  if (f.state_c != nullptr) f.state_c[index] = to_float(static_cast<const T*>(record.start_c)[from]);
  const int copies = s.h_masks > 1 ? s.gates : 1;
  T* const to = static_cast<T*>(f.exchange) + (f.begin & 1) * copies * f.exchange_copy;
  for (int copy = 0; copy < copies; ++copy)
    to[copy * f.exchange_copy + static_cast<int64_t>(n) * s.padded + j] =
        from_float<T>(h * state_factor<T>(s, n, copy, j));
}

template <typename T>
__global__ void widen(const T* from, int64_t count, float* to) {
  if (const int64_t i = thread_index(); i < count) to[i] = from == nullptr ? 0.0F : to_float(from[i]);
}
template <typename T>
__global__ void narrow(const float* from, int64_t count, T* to) {
  if (const int64_t i = thread_index(); i < count) to[i] = from_float<T>(from[i]);
}

// Packs of N adjacent elements, which divide d.
template <typename T, int N>
__global__ void gather_inputs(LoopShape s, const T* __restrict__ x, int gate, int begin, int64_t packs,
                              T* __restrict__ to) {
  const int64_t index = thread_index();
  if (index >= packs) return;
  const int per_row = s.d / N, i = static_cast<int>(index % per_row) * N;
  const auto n = static_cast<int>(index / per_row % s.n), step = begin + static_cast<int>(index / per_row / s.n);
  Pack<T, N> pack = load_pack<N>(x + (static_cast<int64_t>(n) * s.t + input_step(s, step)) * s.d + i);
  if (s.x_masks > 0) {
    const int64_t mask = static_cast<int64_t>(n) * s.x_masks + (s.x_masks == 1 ? 0 : gate);
    const Pack<T, N> factors = load_pack<N>(static_cast<const T*>(s.x_mask) + mask * s.d + i);
#pragma unroll
    for (int e = 0; e < N; ++e) pack.v[e] = from_float<T>(to_float(pack.v[e]) * to_float(factors.v[e]));
  }
  store_pack(to + index * N, pack);
}

template <typename T>
__global__ void gather_states(LoopShape s, LoopRecord record, int gate, bool times_reset, int begin, int64_t count,
                              T* __restrict__ to) {
  const int64_t index = thread_index();
  if (index >= count) return;
  const int j = static_cast<int>(index % s.u), n = static_cast<int>(index / s.u % s.n);
  const int step = begin + static_cast<int>(index / s.u / s.n);
  float value = recorded_state<T>(s, record, n, j, step - 1);
  if (times_reset)
    value *= to_float(static_cast<const T*>(
        record.gates)[((static_cast<int64_t>(n) * record.steps + step - record.begin) * s.saved + 1) * s.u + j]);
  to[index] = from_float<T>(value * state_factor<T>(s, n, gate, j));
}

template <typename T>
__global__ void scatter_inputs(LoopShape s, const float* __restrict__ from, int parts, int begin, int64_t count,
                               T* __restrict__ dx) {
  const int64_t index = thread_index();
  if (index >= count) return;
  const int i = static_cast<int>(index % s.d), n = static_cast<int>(index / s.d % s.n);
  const int step = begin + static_cast<int>(index / s.d / s.n);
  float sum = 0;
  for (int part = 0; part < parts; ++part) {
    const int64_t mask = static_cast<int64_t>(n) * s.x_masks + part;
    const float factor = s.x_masks == 0 ? 1.0F : to_float(static_cast<const T*>(s.x_mask)[mask * s.d + i]);
    sum += factor * from[part * count + index];
  }
  dx[(static_cast<int64_t>(n) * s.t + input_step(s, step)) * s.d + i] = from_float<T>(sum);
}

// A block has 32 columns; its warps take turns with the rows. The order of additions is fixed.
template <typename T>
__global__ void column_sums(const T* __restrict__ from, int64_t rows, int columns, float* to) {
  __shared__ float parts[kPassThreads / kWarp][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < columns)
    for (int64_t row = warp; row < rows; row += kPassThreads / kWarp) sum += to_float(from[row * columns + column]);
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  float all = to[column];
  for (int i = 0; i < kPassThreads / kWarp; ++i) all += parts[i][lane];
  to[column] = all;
}

template <typename T>
__global__ void bias_gradient(LoopShape s, const float* from, T* to) {
  const int64_t index = thread_index();
  const int64_t wide = static_cast<int64_t>(s.gates) * s.u;
  const bool two = s.cell == LoopCell::kGru;
  if (index >= (two ? 2 : 1) * wide) return;
  const auto gate = static_cast<int>(index % wide / s.u), j = static_cast<int>(index % s.u);
  // The second bias of a GRU belongs to the sums from the state.
  const int part = index >= wide && gate == 2 ? 3 : gate;
  to[index] = from_float<T>(from[static_cast<int64_t>(part) * s.padded + j]);
}

unsigned pass_blocks(int64_t items) {
  return blocks_for(items, kPassThreads);
}

}  // namespace

void launch_pack(const LoopShape& s, const void* weights, void* packed, bool back, cudaStream_t stream) {
  with_element(s.element, [&]<typename T>() {
    const int64_t packs = static_cast<int64_t>(s.tiles) * kTile * s.padded * s.gates / kTerms<T>;
    pack<T><<<pass_blocks(packs), kPassThreads, 0, stream>>>(s, static_cast<const T*>(weights), static_cast<T*>(packed),
                                                             back, packs);
  });
}

void launch_first_steps(const LoopShape& s, int* first, cudaStream_t stream) {
  with_element(s.element,
               [&]<typename T>() { first_steps<T><<<static_cast<unsigned>(s.n), kWarp, 0, stream>>>(s, first); });
}

void launch_begin_states(const LoopForward& f, cudaStream_t stream) {
  with_element(f.shape.element, [&]<typename T>() {
    begin_states<T><<<pass_blocks(static_cast<int64_t>(f.shape.n) * f.shape.u), kPassThreads, 0, stream>>>(f);
  });
}

void launch_begin_gradient(const LoopShape& s, const void* from, float* to, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(s.n) * s.u;
  with_element(s.element, [&]<typename T>() {
    widen<T><<<pass_blocks(count), kPassThreads, 0, stream>>>(static_cast<const T*>(from), count, to);
  });
}

void launch_end_gradient(const LoopShape& s, const float* from, void* to, cudaStream_t stream) {
  launch_round(s.element, from, static_cast<int64_t>(s.n) * s.u, to, stream);
}

void launch_gather_inputs(const LoopShape& s, const void* x, int gate, int begin, int end, void* to,
                          cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(end - begin) * s.n * s.d;
  const bool aligned = is_aligned(x, 16) && is_aligned(to, 16) && is_aligned(s.x_mask, 16);
  with_packs(s.element, aligned ? s.d : 1, [&]<typename T, int N>() {
    gather_inputs<T, N><<<pass_blocks(count / N), kPassThreads, 0, stream>>>(s, static_cast<const T*>(x), gate, begin,
                                                                             count / N, static_cast<T*>(to));
  });
}

void launch_gather_states(const LoopShape& s, const LoopRecord& record, int gate, bool times_reset, int begin, int end,
                          void* to, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(end - begin) * s.n * s.u;
  with_element(s.element, [&]<typename T>() {
    gather_states<T><<<pass_blocks(count), kPassThreads, 0, stream>>>(s, record, gate, times_reset, begin, count,
                                                                      static_cast<T*>(to));
  });
}

void launch_scatter_inputs(const LoopShape& s, const float* from, int parts, int begin, int end, void* dx,
                           cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(end - begin) * s.n * s.d;
  with_element(s.element, [&]<typename T>() {
    scatter_inputs<T>
        <<<pass_blocks(count), kPassThreads, 0, stream>>>(s, from, parts, begin, count, static_cast<T*>(dx));
  });
}

void launch_column_sums(const LoopShape& s, const void* from, int64_t rows, float* to, cudaStream_t stream) {
  const int columns = s.sums * s.padded;
  with_element(s.element, [&]<typename T>() {
    column_sums<T><<<static_cast<unsigned>((columns + kWarp - 1) / kWarp), kPassThreads, 0, stream>>>(
        static_cast<const T*>(from), rows, columns, to);
  });
}

void launch_bias_gradient(const LoopShape& s, const float* from, void* to, cudaStream_t stream) {
  with_element(s.element, [&]<typename T>() {
    bias_gradient<T><<<pass_blocks(2 * static_cast<int64_t>(s.gates) * s.u), kPassThreads, 0, stream>>>(
        s, from, static_cast<T*>(to));
  });
}

void launch_round(Element element, const float* from, int64_t count, void* to, cudaStream_t stream) {
  with_element(element, [&]<typename T>() {
    narrow<T><<<pass_blocks(count), kPassThreads, 0, stream>>>(from, count, static_cast<T*>(to));
  });
}

}  // namespace plimsoll::engine::cuda
