// Attention by online softmax (flash attention), forward and backward, without storing a T x T matrix. A warp keeps one
// query (or, for the gradients of k and v, one key) in registers and loops over the rows of the other side, which the
// block loads into shared memory in tiles. Within a tile each lane computes the score of one row; then all lanes
// accumulate, each for its own columns. Tensors are [N,T,H,D] with strides; D is at most kWidestHead = 256.
#include <cmath>
#include <type_traits>

#include "backends/cuda/attention/launch.h"
#include "backends/cuda/common/numbers.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAll = 0xffffffffU;

struct Sizes {
  int t, h, d;
  bool causal;
  float scale;
  HeadStrides in, out;
};

// The offset of a head's first row, and the block's position among heads and rows.
struct Place {
  int head, sample, first, row, lane, warp;

  __device__ explicit Place(const Sizes& s) {
    head = static_cast<int>(blockIdx.y) % s.h;
    sample = static_cast<int>(blockIdx.y) / s.h;
    lane = static_cast<int>(threadIdx.x) % 32;
    warp = static_cast<int>(threadIdx.x) / 32;
    first = static_cast<int>(blockIdx.x) * kWarps;
    row = first + warp;
  }
  __device__ int64_t base(const HeadStrides& strides) const { return sample * strides.sample + head * strides.head; }
};

__device__ inline float sum_lanes(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
  return v;
}
__device__ inline float max_lanes(float v) {
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, step));
  return v;
}

// Loads rows [begin, begin + count) of a head into shared memory as float32, with a row pitch of `pitch`.
template <typename T>
__device__ void load_rows(const T* from, int64_t stride, int begin, int count, int d, float* to, int pitch) {
  for (int i = static_cast<int>(threadIdx.x); i < count * d; i += kWarps * 32)
    to[i / d * pitch + i % d] = to_float(from[(begin + i / d) * stride + i % d]);
}

__device__ inline float dot(const float* a, const float* b, int d) {
  float sum = 0;
  for (int i = 0; i < d; ++i) sum += a[i] * b[i];
  return sum;
}

// kColumns is the number of columns per lane, so a row has at most 32 * kColumns columns.
template <typename T, int kColumns, int kTile>
__global__ void forward(Sizes s, const T* q, const T* k, const T* v, T* y, float* stats) {
  extern __shared__ float shared[];
  const Place at(s);
  const int pitch = s.d + 1;
  float *const keys = shared, *const queries = shared + kTile * pitch;
  const int64_t in = at.base(s.in);
  load_rows(q + in, s.in.position, at.first, min(kWarps, s.t - at.first), s.d, queries, pitch);
  float sums[kColumns] = {}, most = -INFINITY, total = 0;
  const int seen_by_block = s.causal ? min(s.t, at.first + kWarps) : s.t;
  const int seen = at.row >= s.t ? 0 : s.causal ? at.row + 1 : s.t;
  for (int begin = 0; begin < seen_by_block; begin += kTile) {
    const int count = min(kTile, s.t - begin);
    __syncthreads();
    load_rows(k + in, s.in.position, begin, count, s.d, keys, pitch);
    __syncthreads();
    const int mine = begin + at.lane;
    const bool visible = at.lane < count && mine < seen;
    const float score = visible ? s.scale * dot(queries + at.warp * pitch, keys + at.lane * pitch, s.d) : -INFINITY;
    const float higher = fmaxf(most, max_lanes(score));
    if (higher == -INFINITY) continue;  // no visible key for any lane of this warp so far
    const float shrink = most == -INFINITY ? 0.0F : expf(most - higher), weight = visible ? expf(score - higher) : 0.0F;
    most = higher;
    total = total * shrink + sum_lanes(weight);
    for (float& sum : sums) sum *= shrink;
    for (int j = 0; j < count; ++j) {
      const float w = __shfl_sync(kAll, weight, j);
      const T* row = v + in + (begin + j) * s.in.position;
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        if (const int column = at.lane + 32 * i; column < s.d) sums[i] += w * to_float(row[column]);
    }
  }
  if (at.row >= s.t) return;
  T* to = y + at.base(s.out) + at.row * s.out.position;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    if (const int column = at.lane + 32 * i; column < s.d) to[column] = from_float<T>(sums[i] / total);
  if (at.lane == 0) stats[static_cast<int64_t>(blockIdx.y) * s.t + at.row] = most + logf(total);
}

// The sum of dy * y of each row.
template <typename T>
__global__ void dot_rows(Sizes s, const T* dy, const T* y, float* row_sums) {
  const Place at(s);
  if (at.row >= s.t) return;
  const int64_t row = at.base(s.out) + at.row * s.out.position;
  float sum = 0;
  for (int i = at.lane; i < s.d; i += 32) sum += to_float(dy[row + i]) * to_float(y[row + i]);
  sum = sum_lanes(sum);
  if (at.lane == 0) row_sums[static_cast<int64_t>(blockIdx.y) * s.t + at.row] = sum;
}

template <typename T>
struct Gradients {
  const T *dy, *q, *k, *v;
  const float *stats, *row_sums;
  T *dq, *dk, *dv;
};

// For queries: own row (q, dy), tiles of (k, v), result dq. For keys: own row (k, v), tiles of (q, dy), results dk and
// dv. The two dot products per pair are the same in both cases.
template <typename T, int kColumns, int kTile, bool kKeys>
__global__ void backward(Sizes s, Gradients<T> g) {
  extern __shared__ float shared[];
  const Place at(s);
  const int pitch = s.d + 1;
  float *const tile_first = shared, *const tile_second = tile_first + kTile * pitch;
  float *const own_first = tile_second + kTile * pitch, *const own_second = own_first + kWarps * pitch;
  const int64_t in = at.base(s.in), out = at.base(s.out), numbers = static_cast<int64_t>(blockIdx.y) * s.t;
  const int64_t query_second = s.out.position;
  const T *first = (kKeys ? g.k : g.q) + in, *second = kKeys ? g.v + in : g.dy + out;
  const T *other_first = (kKeys ? g.q : g.k) + in, *other_second = kKeys ? g.dy + out : g.v + in;
  const int64_t second_stride = kKeys ? s.in.position : query_second;
  const int64_t other_second_stride = kKeys ? query_second : s.in.position;
  const int rows = min(kWarps, s.t - at.first);
  load_rows(first, s.in.position, at.first, rows, s.d, own_first, pitch);
  load_rows(second, second_stride, at.first, rows, s.d, own_second, pitch);
  const bool live = at.row < s.t;
  const int last = !kKeys && s.causal ? min(s.t, at.first + kWarps) : s.t;
  float by_score[kColumns] = {}, by_weight[kColumns] = {};
  for (int begin = kKeys && s.causal ? at.first / kTile * kTile : 0; begin < last; begin += kTile) {
    const int count = min(kTile, s.t - begin);
    __syncthreads();
    load_rows(other_first, s.in.position, begin, count, s.d, tile_first, pitch);
    load_rows(other_second, other_second_stride, begin, count, s.d, tile_second, pitch);
    __syncthreads();
    const int other = begin + at.lane, query = kKeys ? other : at.row, key = kKeys ? at.row : other;
    float weight = 0, gradient = 0;
    if (live && at.lane < count && (!s.causal || key <= query)) {
      const float score = s.scale * dot(own_first + at.warp * pitch, tile_first + at.lane * pitch, s.d);
      weight = expf(score - g.stats[numbers + query]);
      const float arrived = dot(own_second + at.warp * pitch, tile_second + at.lane * pitch, s.d);
      gradient = s.scale * weight * (arrived - g.row_sums[numbers + query]);
    }
    for (int j = 0; j < count; ++j) {
      const float w = __shfl_sync(kAll, weight, j), d = __shfl_sync(kAll, gradient, j);
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        if (const int column = at.lane + 32 * i; column < s.d) {
          by_score[i] += d * tile_first[j * pitch + column];
          if (kKeys) by_weight[i] += w * tile_second[j * pitch + column];
        }
    }
  }
  if (!live) return;
  const int64_t to = in + at.row * s.in.position;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    if (const int column = at.lane + 32 * i; column < s.d) {
      (kKeys ? g.dk : g.dq)[to + column] = from_float<T>(by_score[i]);
      if (kKeys) g.dv[to + column] = from_float<T>(by_weight[i]);
    }
}

// Every card offers 48 KiB of shared memory per block without opt-in, so wide heads use shorter tiles.
template <typename F>
void with_width(int64_t d, F f) {
  if (d <= 32) return f(std::integral_constant<int, 1>{}, std::integral_constant<int, 32>{});
  if (d <= 64) return f(std::integral_constant<int, 2>{}, std::integral_constant<int, 32>{});
  if (d <= 128) return f(std::integral_constant<int, 4>{}, std::integral_constant<int, 32>{});
  f(std::integral_constant<int, 8>{}, std::integral_constant<int, 8>{});
}

Sizes sizes_of(const Attention& a) {
  return {static_cast<int>(a.t), static_cast<int>(a.h), static_cast<int>(a.d), a.causal, a.scale, a.in, a.out};
}

// Heads run along y, where at most 65535 blocks are allowed; the binder checks this.
dim3 grid_of(const Attention& a) {
  return {static_cast<unsigned>((a.t + kWarps - 1) / kWarps), static_cast<unsigned>(a.n * a.h)};
}

}  // namespace

void flash_forward(cudaStream_t stream, const Attention& a, const void* q, const void* k, const void* v, void* y,
                   float* stats) {
  with_number(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_width(a.d, [&](auto columns, auto tile) {
      constexpr int kColumns = decltype(columns)::value, kTile = decltype(tile)::value;
      const size_t shared = static_cast<size_t>((kTile + kWarps) * (a.d + 1)) * sizeof(float);
      forward<T, kColumns, kTile>
          <<<grid_of(a), kWarps * 32, shared, stream>>>(sizes_of(a), static_cast<const T*>(q), static_cast<const T*>(k),
                                                        static_cast<const T*>(v), static_cast<T*>(y), stats);
    });
  });
}

void flash_backward(cudaStream_t stream, const Attention& a, const FlashGradients& g) {
  with_number(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Sizes s = sizes_of(a);
    dot_rows<T><<<grid_of(a), kWarps * 32, 0, stream>>>(s, static_cast<const T*>(g.dy), static_cast<const T*>(g.y),
                                                        g.row_sums);
    const Gradients<T> typed{static_cast<const T*>(g.dy),
                             static_cast<const T*>(g.q),
                             static_cast<const T*>(g.k),
                             static_cast<const T*>(g.v),
                             g.stats,
                             g.row_sums,
                             static_cast<T*>(g.dq),
                             static_cast<T*>(g.dk),
                             static_cast<T*>(g.dv)};
    with_width(a.d, [&](auto columns, auto tile) {
      constexpr int kColumns = decltype(columns)::value, kTile = decltype(tile)::value;
      const size_t shared = static_cast<size_t>(2 * (kTile + kWarps) * (a.d + 1)) * sizeof(float);
      backward<T, kColumns, kTile, false><<<grid_of(a), kWarps * 32, shared, stream>>>(s, typed);
      backward<T, kColumns, kTile, true><<<grid_of(a), kWarps * 32, shared, stream>>>(s, typed);
    });
  });
}

}  // namespace plimsoll::engine::cuda
