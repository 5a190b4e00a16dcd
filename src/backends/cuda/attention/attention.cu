// Attention by online softmax (flash attention), forward and backward, without storing a T x T matrix. A warp keeps one
// query (or, for the gradients of k and v, one key) in registers and loops over the rows of the other side, which the
// block loads into shared memory in tiles. Within a tile each lane computes the score of one row; then all lanes
// accumulate, each for its own columns. Tensors are [N,T,H,D] with strides; D is at most kWidestHead = 256. Several
// heads of queries may share a head of keys. Masks are read where a score is made; a query that sees no position has
// equal weights for all of them.
#include <cmath>
#include <type_traits>

#include "backends/cuda/attention/sizes.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAll = 0xffffffffU;

// A block's sample and head, and the row of each of its warps.
struct Place {
  int head, sample, first, row, lane, warp;

  __device__ explicit Place(int heads) {
    head = static_cast<int>(blockIdx.y) % heads;
    sample = static_cast<int>(blockIdx.y) / heads;
    lane = static_cast<int>(threadIdx.x) % 32;
    warp = static_cast<int>(threadIdx.x) / 32;
    first = static_cast<int>(blockIdx.x) * kWarps;
    row = first + warp;
  }
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
__global__ void forward(AttentionSizes s, const T* q, const T* k, const T* v, T* y, float* stats) {
  extern __shared__ float shared[];
  const Place at(s.h);
  const int pitch = s.d + 1, shared_head = at.head / (s.h / s.g);
  float *const keys = shared, *const queries = shared + kTile * pitch;
  const T* const own_keys = k + base_of(s.k, at.sample, shared_head);
  const T* const own_values = v + base_of(s.v, at.sample, shared_head);
  load_rows(q + base_of(s.q, at.sample, at.head), s.q.position, at.first, min(kWarps, s.tq - at.first), s.d, queries,
            pitch);
  float sums[kColumns] = {}, most = -INFINITY, total = 0;
  const auto accumulate = [&](float weight, int begin, int count) {
    for (int j = 0; j < count; ++j) {
      const float w = __shfl_sync(kAll, weight, j);
      const T* row = own_values + (begin + j) * s.v.position;
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        if (const int column = at.lane + 32 * i; column < s.dv) sums[i] += w * to_float(row[column]);
    }
  };
  const int end = s.end_key(min(s.tq, at.first + kWarps) - 1);
  for (int begin = s.first_key(at.first) / kTile * kTile; begin < end; begin += kTile) {
    const int count = min(kTile, s.tk - begin);
    __syncthreads();
    load_rows(own_keys, s.k.position, begin, count, s.d, keys, pitch);
    __syncthreads();
    const bool visible = at.lane < count && at.row < s.tq && s.visible(at.sample, at.head, at.row, begin + at.lane);
    const float score = visible ? s.scale * dot(queries + at.warp * pitch, keys + at.lane * pitch, s.d) : -INFINITY;
    const float higher = fmaxf(most, max_lanes(score));
    if (higher == -INFINITY) continue;  // no visible key for any lane of this warp so far
    const float shrink = most == -INFINITY ? 0.0F : expf(most - higher), weight = visible ? expf(score - higher) : 0.0F;
    most = higher;
    total = total * shrink + sum_lanes(weight);
    for (float& sum : sums) sum *= shrink;
    accumulate(weight, begin, count);
  }
  if (at.row >= s.tq) return;
  if (most == -INFINITY) {  // the query sees nothing
    most = 0, total = static_cast<float>(s.tk);
    for (int begin = 0; begin < s.tk; begin += 32) accumulate(1.0F, begin, min(32, s.tk - begin));
  }
  T* to = y + base_of(s.y, at.sample, at.head) + at.row * s.y.position;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    if (const int column = at.lane + 32 * i; column < s.dv) to[column] = from_float<T>(sums[i] / total);
  if (at.lane == 0) stats[static_cast<int64_t>(blockIdx.y) * s.tq + at.row] = most + logf(total);
}

// The sum of dy * y of each query, and 1 for queries that see nothing.
template <typename T>
__global__ void dot_rows(AttentionSizes s, const T* dy, const T* y, float* row_sums, float* blind) {
  const Place at(s.h);
  if (at.row >= s.tq) return;
  const int64_t row = base_of(s.y, at.sample, at.head) + at.row * s.y.position;
  float sum = 0;
  for (int i = at.lane; i < s.dv; i += 32) sum += to_float(dy[row + i]) * to_float(y[row + i]);
  sum = sum_lanes(sum);
  const int64_t number = static_cast<int64_t>(blockIdx.y) * s.tq + at.row;
  if (at.lane == 0) row_sums[number] = sum;
  if (blind == nullptr) return;
  bool any = false;
  const int end = s.end_key(at.row);
  for (int begin = s.first_key(at.row); begin < end && !any; begin += 32) {
    const int key = begin + at.lane;
    any = __any_sync(kAll, key < end && s.visible(at.sample, at.head, at.row, key)) != 0;
  }
  if (at.lane == 0) blind[number] = any ? 0.0F : 1.0F;
}

template <typename T>
struct Gradients {
  const T *dy, *q, *k, *v;
  const float *stats, *row_sums, *blind;
  T *dq, *dk, *dv;
};

// For queries: own row (q, dy), tiles of (k, v), result dq. For keys: own row (k, v), tiles of (q, dy) of all heads
// that share it, results dk and dv. The two dot products per pair are the same in both cases.
template <typename T, int kColumns, int kTile, bool kKeys>
__global__ void backward(AttentionSizes s, Gradients<T> g) {
  extern __shared__ float shared[];
  const Place at(kKeys ? s.g : s.h);
  const int pitch = s.d + 1, second_pitch = s.dv + 1, sharers = s.h / s.g;
  float *const tile_first = shared, *const tile_second = tile_first + kTile * pitch;
  float *const own_first = tile_second + kTile * second_pitch, *const own_second = own_first + kWarps * pitch;
  const int shared_head = kKeys ? at.head : at.head / sharers, own_rows = kKeys ? s.tk : s.tq;
  const int64_t keys = base_of(s.k, at.sample, shared_head), values = base_of(s.v, at.sample, shared_head);
  const int64_t own_queries = kKeys ? 0 : base_of(s.q, at.sample, at.head);
  const int rows = min(kWarps, own_rows - at.first);
  if (kKeys) {
    load_rows(g.k + keys, s.k.position, at.first, rows, s.d, own_first, pitch);
    load_rows(g.v + values, s.v.position, at.first, rows, s.dv, own_second, second_pitch);
  } else {
    load_rows(g.q + own_queries, s.q.position, at.first, rows, s.d, own_first, pitch);
    load_rows(g.dy + base_of(s.y, at.sample, at.head), s.y.position, at.first, rows, s.dv, own_second, second_pitch);
  }
  const bool live = at.row < own_rows;
  float by_score[kColumns] = {}, by_weight[kColumns] = {};
  // Queries that see nothing have a weight for every key, so with masks all queries are gone through.
  const bool all = g.blind != nullptr;
  const int begin_row = kKeys ? (s.causal && !all ? at.first : 0) : s.first_key(at.first);
  const int end_row = kKeys ? s.tq : s.end_key(min(s.tq, at.first + kWarps) - 1);
  for (int sharer = 0; sharer < (kKeys ? sharers : 1); ++sharer) {
    const int head = kKeys ? at.head * sharers + sharer : at.head;
    const int64_t queries = base_of(s.q, at.sample, head), results = base_of(s.y, at.sample, head);
    const int64_t numbers = (static_cast<int64_t>(at.sample) * s.h + head) * s.tq;
    for (int begin = begin_row / kTile * kTile; begin < end_row; begin += kTile) {
      const int count = min(kTile, (kKeys ? s.tq : s.tk) - begin);
      __syncthreads();
      if (kKeys) {
        load_rows(g.q + queries, s.q.position, begin, count, s.d, tile_first, pitch);
        load_rows(g.dy + results, s.y.position, begin, count, s.dv, tile_second, second_pitch);
      } else {
        load_rows(g.k + keys, s.k.position, begin, count, s.d, tile_first, pitch);
        load_rows(g.v + values, s.v.position, begin, count, s.dv, tile_second, second_pitch);
      }
      __syncthreads();
      const int other = begin + at.lane, query = kKeys ? other : at.row, key = kKeys ? at.row : other;
      float weight = 0, gradient = 0;
      if (live && at.lane < count) {
        if (all && g.blind[numbers + query] > 0) {
          weight = expf(-g.stats[numbers + query]);
        } else if (s.visible(at.sample, head, query, key)) {
          const float score = s.scale * dot(own_first + at.warp * pitch, tile_first + at.lane * pitch, s.d);
          weight = expf(score - g.stats[numbers + query]);
          const float arrived = dot(own_second + at.warp * second_pitch, tile_second + at.lane * second_pitch, s.dv);
          gradient = s.scale * weight * (arrived - g.row_sums[numbers + query]);
        }
      }
      for (int j = 0; j < count; ++j) {
        const float w = __shfl_sync(kAll, weight, j), d = __shfl_sync(kAll, gradient, j);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          const int column = at.lane + 32 * i;
          if (column < s.d) by_score[i] += d * tile_first[j * pitch + column];
          if (kKeys && column < s.dv) by_weight[i] += w * tile_second[j * second_pitch + column];
        }
      }
    }
  }
  if (!live) return;
  const int64_t to = kKeys ? keys + at.row * s.k.position : own_queries + at.row * s.q.position;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = at.lane + 32 * i;
    if (column < s.d) (kKeys ? g.dk : g.dq)[to + column] = from_float<T>(by_score[i]);
    if (kKeys && column < s.dv) g.dv[values + at.row * s.v.position + column] = from_float<T>(by_weight[i]);
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

DeviceMask mask_of(const AttentionMask& mask, const void* first) {
  const Element element = mask.dtype == DType::kFloat16    ? Element::kF16
                          : mask.dtype == DType::kBFloat16 ? Element::kBF16
                                                           : Element::kF32;
  return {first, element};
}

// Heads run along y, where at most 65535 blocks are allowed; the binder checks this.
dim3 grid_of(int64_t rows, int64_t heads) {
  return {static_cast<unsigned>((rows + kWarps - 1) / kWarps), static_cast<unsigned>(heads)};
}

}  // namespace

AttentionSizes sizes_of(const Attention& a, const MaskAddresses& masks) {
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  const AttentionForm& f = a.form;
  AttentionSizes s{};
  s.tq = narrow(f.tq), s.tk = narrow(f.tk), s.h = narrow(f.h), s.g = narrow(f.g), s.d = narrow(f.d),
  s.dv = narrow(f.dv);
  s.causal = f.causal;
  // A window that is wider than both sequences hides nothing.
  s.window = f.window > f.tq + f.tk ? 0 : narrow(f.window);
  s.scale = a.scale;
  s.q = a.q, s.k = a.k, s.v = a.v, s.y = a.y;
  s.q_mask = mask_of(a.q_mask, masks.q);
  s.k_mask = mask_of(a.k_mask, masks.k);
  s.m_mask = mask_of(a.m_mask, masks.m);
  s.mask_n = narrow(f.mask_n), s.mask_h = narrow(f.mask_h);
  return s;
}

void flash_forward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const void* q, const void* k,
                   const void* v, void* y, float* stats) {
  if (a.in_tiles()) return tiles_forward(stream, a, masks, q, k, v, y, stats);
  with_number(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_width(a.widest(), [&](auto columns, auto tile) {
      constexpr int kColumns = decltype(columns)::value, kTile = decltype(tile)::value;
      const size_t shared = static_cast<size_t>((kTile + kWarps) * (a.form.d + 1)) * sizeof(float);
      forward<T, kColumns, kTile><<<grid_of(a.form.tq, a.form.n * a.form.h), kWarps * 32, shared, stream>>>(
          sizes_of(a, masks), static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
          static_cast<T*>(y), stats);
    });
  });
}

void flash_backward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const FlashGradients& g) {
  const AttentionForm& f = a.form;
  with_number(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const AttentionSizes s = sizes_of(a, masks);
    const dim3 queries = grid_of(f.tq, f.n * f.h), keys = grid_of(f.tk, f.n * f.g);
    dot_rows<T><<<queries, kWarps * 32, 0, stream>>>(s, static_cast<const T*>(g.dy), static_cast<const T*>(g.y),
                                                     g.row_sums, g.blind);
    if (a.in_tiles()) return tiles_backward(stream, a, masks, g);
    const Gradients<T> typed{static_cast<const T*>(g.dy),
                             static_cast<const T*>(g.q),
                             static_cast<const T*>(g.k),
                             static_cast<const T*>(g.v),
                             g.stats,
                             g.row_sums,
                             g.blind,
                             static_cast<T*>(g.dq),
                             static_cast<T*>(g.dk),
                             static_cast<T*>(g.dv)};
    with_width(a.widest(), [&](auto columns, auto tile) {
      constexpr int kColumns = decltype(columns)::value, kTile = decltype(tile)::value;
      const size_t shared = static_cast<size_t>((kTile + kWarps) * (f.d + f.dv + 2)) * sizeof(float);
      backward<T, kColumns, kTile, false><<<queries, kWarps * 32, shared, stream>>>(s, typed);
      backward<T, kColumns, kTile, true><<<keys, kWarps * 32, shared, stream>>>(s, typed);
    });
  });
}

}  // namespace plimsoll::engine::cuda
