// Attention with masks on tensor cores, in half precision (compute capability 8.0), without storing a T x T matrix. A
// block has 64 rows of one side (queries, or keys for their gradients), 16 per warp, and loops over tiles of the other
// side in shared memory. The scores of a tile stay in registers: as results of one product they have the layout of the
// left operand of the next.
#include <cmath>

#include "backends/cuda/attention/sizes.cuh"
#include "backends/cuda/common/async_copy.cuh"
#include "backends/cuda/common/mma.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kTileWarps = 4, kTileThreads = kTileWarps * kWarp, kOwnRows = 16 * kTileWarps;

// kWidth: columns of a row in shared memory, at least those of a head. The padding avoids bank conflicts.
template <int kWidth>
inline constexpr int kRowPitch = kWidth + 8;
// Rows of a tile of the other side.
template <int kWidth>
inline constexpr int kOtherRows = kWidth > 64 ? 32 : 64;

// Loads rows [begin, begin + count) of a head; rows and columns behind them are zeros.
template <typename T, int kWidth>
__device__ void load_tile(const T* from, int64_t stride, int begin, int count, int rows, int d, T* to) {
  constexpr int kPacks = kWidth / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kPacks; i += kTileThreads) {
    const int row = i / kPacks, column = i % kPacks * 8;
    uint4 word = {0, 0, 0, 0};
    if (row < count && column < d) word = *reinterpret_cast<const uint4*>(from + (begin + row) * stride + column);
    *reinterpret_cast<uint4*>(to + row * kRowPitch<kWidth> + column) = word;
  }
}

template <typename T>
__device__ inline uint32_t two(const T* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}

// sums[n] = rows of the warp in `own` times rows 8 n to 8 n + 7 of `other`: the sums over all columns.
template <typename T, int kWidth, int kGroups>
__device__ inline void multiply_rows(const T* own, const T* other, float (&sums)[kGroups][4]) {
  constexpr int kP = kRowPitch<kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < kGroups; ++n)
#pragma unroll
    for (float& sum : sums[n]) sum = 0;
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    const T* const row = own + g * kP + k + 2 * t;
    const uint32_t a[4] = {two(row), two(row + 8 * kP), two(row + 8), two(row + 8 * kP + 8)};
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const T* const column = other + (8 * n + g) * kP + k + 2 * t;
      const uint32_t b[2] = {two(column), two(column + 8)};
      multiply<T>(sums[n], a, b);
    }
  }
}

// sums[n] += weights times columns 8 n to 8 n + 7 of `other`: the sums over its rows. `weights` are results of
// multiply_rows, for the same rows of `other`.
template <typename T, int kWidth, int kGroups>
__device__ inline void add_columns(const float (&weights)[kGroups][4], const T* other, float (&sums)[kWidth / 8][4]) {
  constexpr int kP = kRowPitch<kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < kGroups / 2; ++k) {
    const auto pair = [&](int group, int first) {
      return Matrix<T>::pack(from_float<T>(weights[group][first]), from_float<T>(weights[group][first + 1]));
    };
    const uint32_t a[4] = {pair(2 * k, 0), pair(2 * k, 2), pair(2 * k + 1, 0), pair(2 * k + 1, 2)};
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[2], c[2];
      // Matrices: rows 0-7 and 8-15 of the first eight columns, then of the next.
      const T* const at = other + (16 * k + lane % 16) * kP + 8 * (n + lane / 16);
      load_transposed(at, b[0], b[1], c[0], c[1]);
      multiply<T>(sums[n], a, b);
      multiply<T>(sums[n + 1], a, c);
    }
  }
}

__device__ inline float over_lanes_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 2));
}
__device__ inline float over_lanes_sum(float v) {
  v += __shfl_xor_sync(kAllLanes, v, 1);
  return v + __shfl_xor_sync(kAllLanes, v, 2);
}

// A block's place, and a lane's first row and columns inside of the warp's results: row g and g + 8, columns 8 n + 2 t
// and the next.
struct TilePlace {
  int head, sample, first, row, column, warp_row;

  __device__ explicit TilePlace(int heads) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    head = static_cast<int>(blockIdx.y) % heads;
    sample = static_cast<int>(blockIdx.y) / heads;
    first = static_cast<int>(blockIdx.x) * kOwnRows;
    warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
    row = first + warp_row + lane / 4;
    column = lane % 4 * 2;
  }
};

// Writes results of a warp, each row times its factor.
template <typename T, int kWidth>
__device__ inline void store_rows(const float (&sums)[kWidth / 8][4], const TilePlace& at, int rows, int d,
                                  int64_t stride, const float (&factor)[2], T* to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row + 8 * half;
    if (row >= rows) continue;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      if (8 * n < d)
        *reinterpret_cast<uint32_t*>(to + row * stride + 8 * n + at.column) = Matrix<T>::pack(
            from_float<T>(sums[n][2 * half] * factor[half]), from_float<T>(sums[n][2 * half + 1] * factor[half]));
  }
}

// Whether a query sees all keys of a tile.
__device__ inline bool sees_all(const AttentionSizes& s, int first_query, int last_query, int begin, int end) {
  if (s.masked() || (s.causal && end - 1 > first_query)) return false;
  return s.window == 0 || (last_query - begin < s.window && end - 1 - first_query < s.window);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    tile_forward(AttentionSizes s, const T* q, const T* k, const T* v, T* y, float* stats) {
  extern __shared__ uint4 shared[];
  constexpr int kOther = kOtherRows<kWidth>, kGroups = kOther / 8, kP = kRowPitch<kWidth>;
  T *const queries = reinterpret_cast<T*>(shared), *const keys = queries + kOwnRows * kP,
           *const values = keys + kOther * kP;
  const TilePlace at(s.h);
  const int shared_head = at.head / (s.h / s.g);
  const T* const own_keys = k + base_of(s.k, at.sample, shared_head);
  const T* const own_values = v + base_of(s.v, at.sample, shared_head);
  load_tile<T, kWidth>(q + base_of(s.q, at.sample, at.head), s.q.position, at.first, min(kOwnRows, s.tq - at.first),
                       kOwnRows, s.d, queries);
  float sums[kWidth / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  const int last = min(s.tq, at.first + kOwnRows) - 1, end = s.end_key(last);
  for (int begin = s.first_key(at.first) / kOther * kOther; begin < end; begin += kOther) {
    const int count = min(kOther, s.tk - begin);
    __syncthreads();
    load_tile<T, kWidth>(own_keys, s.k.position, begin, count, kOther, s.d, keys);
    load_tile<T, kWidth>(own_values, s.v.position, begin, count, kOther, s.dv, values);
    __syncthreads();
    float scores[kGroups][4];
    multiply_rows<T, kWidth>(queries + at.warp_row * kP, keys, scores);
    const bool all = count == kOther && sees_all(s, at.first, last, begin, begin + kOther);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row + 8 * half;
      float higher = most[half];
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[n][2 * half + e];
          const int key = begin + 8 * n + at.column + e;
          const bool visible = all || (row < s.tq && key < s.tk && s.visible(at.sample, at.head, row, key));
          score = visible ? score * s.scale : -INFINITY;
          higher = fmaxf(higher, score);
        }
      higher = over_lanes_max(higher);
      const float base = higher == -INFINITY ? 0.0F : higher, shrink = __expf(most[half] - base);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[n][2 * half + e];
          score = __expf(score - base);
          sum += score;
        }
      most[half] = higher;
      total[half] = total[half] * shrink + sum;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        sums[n][2 * half] *= shrink;
        sums[n][2 * half + 1] *= shrink;
      }
    }
    add_columns<T, kWidth>(scores, values, sums);
  }
  bool blind[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] = over_lanes_sum(total[half]);
    blind[half] = most[half] == -INFINITY;
    if (!blind[half]) continue;
    most[half] = 0;
    total[half] = static_cast<float>(s.tk);
  }
  // Queries that see nothing have equal weights for all keys.
  if (__syncthreads_or((blind[0] && at.row < s.tq) || (blind[1] && at.row + 8 < s.tq)) != 0)
    for (int begin = 0; begin < s.tk; begin += kOther) {
      __syncthreads();
      load_tile<T, kWidth>(own_values, s.v.position, begin, min(kOther, s.tk - begin), kOther, s.dv, values);
      __syncthreads();
      float weights[kGroups][4];
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) weights[n][e] = blind[e / 2] ? 1.0F : 0.0F;
      add_columns<T, kWidth>(weights, values, sums);
    }
  const float factor[2] = {1.0F / total[0], 1.0F / total[1]};
  store_rows<T, kWidth>(sums, at, s.tq, s.dv, s.y.position, factor, y + base_of(s.y, at.sample, at.head));
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (at.column == 0 && at.row + 8 * half < s.tq)
      stats[static_cast<int64_t>(blockIdx.y) * s.tq + at.row + 8 * half] = most[half] + logf(total[half]);
}

template <typename T>
struct TileGradients {
  const T *dy, *q, *k, *v;
  const float *stats, *row_sums, *blind;
  T *dq, *dk, *dv;
};

// The weight of a pair and the gradient of its score, from the sums of both products.
template <typename T>
__device__ inline void pair_gradient(const AttentionSizes& s, const TileGradients<T>& g, int64_t number, bool visible,
                                     float& score, float& arrived) {
  float weight = 0, gradient = 0;
  if (visible) {
    weight = __expf(score * s.scale - g.stats[number]);
    gradient = s.scale * weight * (arrived - g.row_sums[number]);
  }
  score = weight;
  arrived = gradient;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads) tile_query_gradients(AttentionSizes s, TileGradients<T> g) {
  extern __shared__ uint4 shared[];
  constexpr int kOther = kOtherRows<kWidth>, kGroups = kOther / 8, kP = kRowPitch<kWidth>;
  T *const queries = reinterpret_cast<T*>(shared), *const results = queries + kOwnRows * kP;
  T *const keys = results + kOwnRows * kP, *const values = keys + kOther * kP;
  const TilePlace at(s.h);
  const int shared_head = at.head / (s.h / s.g), rows = min(kOwnRows, s.tq - at.first);
  const int64_t numbers = static_cast<int64_t>(blockIdx.y) * s.tq;
  load_tile<T, kWidth>(g.q + base_of(s.q, at.sample, at.head), s.q.position, at.first, rows, kOwnRows, s.d, queries);
  load_tile<T, kWidth>(g.dy + base_of(s.y, at.sample, at.head), s.y.position, at.first, rows, kOwnRows, s.dv, results);
  float sums[kWidth / 8][4] = {};
  const int last = min(s.tq, at.first + kOwnRows) - 1, end = s.end_key(last);
  for (int begin = s.first_key(at.first) / kOther * kOther; begin < end; begin += kOther) {
    const int count = min(kOther, s.tk - begin);
    __syncthreads();
    load_tile<T, kWidth>(g.k + base_of(s.k, at.sample, shared_head), s.k.position, begin, count, kOther, s.d, keys);
    load_tile<T, kWidth>(g.v + base_of(s.v, at.sample, shared_head), s.v.position, begin, count, kOther, s.dv, values);
    __syncthreads();
    float scores[kGroups][4], gradients[kGroups][4];
    multiply_rows<T, kWidth>(queries + at.warp_row * kP, keys, scores);
    multiply_rows<T, kWidth>(results + at.warp_row * kP, values, gradients);
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = at.row + e / 2 * 8, key = begin + 8 * n + at.column + e % 2;
        const bool visible = query < s.tq && key < s.tk && (g.blind == nullptr || g.blind[numbers + query] == 0) &&
                             s.visible(at.sample, at.head, query, key);
        pair_gradient(s, g, numbers + query, visible, scores[n][e], gradients[n][e]);
      }
    add_columns<T, kWidth>(gradients, keys, sums);
  }
  const float one[2] = {1, 1};
  store_rows<T, kWidth>(sums, at, s.tq, s.d, s.q.position, one, g.dq + base_of(s.q, at.sample, at.head));
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads) tile_key_gradients(AttentionSizes s, TileGradients<T> g) {
  extern __shared__ uint4 shared[];
  constexpr int kOther = kOtherRows<kWidth>, kGroups = kOther / 8, kP = kRowPitch<kWidth>;
  T *const keys = reinterpret_cast<T*>(shared), *const values = keys + kOwnRows * kP;
  T *const queries = values + kOwnRows * kP, *const results = queries + kOther * kP;
  const TilePlace at(s.g);
  const int sharers = s.h / s.g, rows = min(kOwnRows, s.tk - at.first);
  load_tile<T, kWidth>(g.k + base_of(s.k, at.sample, at.head), s.k.position, at.first, rows, kOwnRows, s.d, keys);
  load_tile<T, kWidth>(g.v + base_of(s.v, at.sample, at.head), s.v.position, at.first, rows, kOwnRows, s.dv, values);
  float by_score[kWidth / 8][4] = {}, by_weight[kWidth / 8][4] = {};
  // Queries that see nothing have a weight for every key.
  const int first = s.causal && g.blind == nullptr ? at.first / kOther * kOther : 0;
  for (int sharer = 0; sharer < sharers; ++sharer) {
    const int head = at.head * sharers + sharer;
    const int64_t numbers = (static_cast<int64_t>(at.sample) * s.h + head) * s.tq;
    for (int begin = first; begin < s.tq; begin += kOther) {
      const int count = min(kOther, s.tq - begin);
      __syncthreads();
      load_tile<T, kWidth>(g.q + base_of(s.q, at.sample, head), s.q.position, begin, count, kOther, s.d, queries);
      load_tile<T, kWidth>(g.dy + base_of(s.y, at.sample, head), s.y.position, begin, count, kOther, s.dv, results);
      __syncthreads();
      float scores[kGroups][4], gradients[kGroups][4];
      multiply_rows<T, kWidth>(keys + at.warp_row * kP, queries, scores);
      multiply_rows<T, kWidth>(values + at.warp_row * kP, results, gradients);
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = at.row + e / 2 * 8, query = begin + 8 * n + at.column + e % 2;
          const bool exists = query < s.tq && key < s.tk;
          const bool blind = exists && g.blind != nullptr && g.blind[numbers + query] > 0;
          const bool visible = exists && !blind && s.visible(at.sample, head, query, key);
          pair_gradient(s, g, numbers + query, visible, scores[n][e], gradients[n][e]);
          if (blind) scores[n][e] = __expf(-g.stats[numbers + query]);
        }
      add_columns<T, kWidth>(scores, results, by_weight);
      add_columns<T, kWidth>(gradients, queries, by_score);
    }
  }
  const float one[2] = {1, 1};
  store_rows<T, kWidth>(by_score, at, s.tk, s.d, s.k.position, one, g.dk + base_of(s.k, at.sample, at.head));
  store_rows<T, kWidth>(by_weight, at, s.tk, s.dv, s.v.position, one, g.dv + base_of(s.v, at.sample, at.head));
}

// Calls f.operator()<T, kWidth>().
template <typename F>
void with_tile(const Attention& a, F f) {
  const auto widths = [&]<typename T>() {
    if (a.widest() <= 64)
      f.template operator()<T, 64>();
    else
      f.template operator()<T, 128>();
  };
  if (a.dtype == DType::kFloat16)
    widths.template operator()<__half>();
  else
    widths.template operator()<__nv_bfloat16>();
}

template <typename Kernel, typename... Arguments>
void launch_tiles(Kernel kernel, cudaStream_t stream, int64_t rows, int64_t heads, int64_t shared_rows, int64_t pitch,
                  Arguments... arguments) {
  allow_most_shared(kernel);
  const dim3 grid(static_cast<unsigned>((rows + kOwnRows - 1) / kOwnRows), static_cast<unsigned>(heads));
  kernel<<<grid, kTileThreads, static_cast<size_t>(shared_rows * pitch * 2), stream>>>(arguments...);
}

}  // namespace

void tiles_forward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const void* q, const void* k,
                   const void* v, void* y, float* stats) {
  with_tile(a, [&]<typename T, int kWidth>() {
    launch_tiles(tile_forward<T, kWidth>, stream, a.form.tq, a.form.n * a.form.h, kOwnRows + 2 * kOtherRows<kWidth>,
                 kRowPitch<kWidth>, sizes_of(a, masks), static_cast<const T*>(q), static_cast<const T*>(k),
                 static_cast<const T*>(v), static_cast<T*>(y), stats);
  });
}

void tiles_backward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const FlashGradients& g) {
  with_tile(a, [&]<typename T, int kWidth>() {
    const TileGradients<T> typed{static_cast<const T*>(g.dy),
                                 static_cast<const T*>(g.q),
                                 static_cast<const T*>(g.k),
                                 static_cast<const T*>(g.v),
                                 g.stats,
                                 g.row_sums,
                                 g.blind,
                                 static_cast<T*>(g.dq),
                                 static_cast<T*>(g.dk),
                                 static_cast<T*>(g.dv)};
    const int64_t rows = 2 * kOwnRows + 2 * kOtherRows<kWidth>;
    launch_tiles(tile_query_gradients<T, kWidth>, stream, a.form.tq, a.form.n * a.form.h, rows, kRowPitch<kWidth>,
                 sizes_of(a, masks), typed);
    launch_tiles(tile_key_gradients<T, kWidth>, stream, a.form.tk, a.form.n * a.form.g, rows, kRowPitch<kWidth>,
                 sizes_of(a, masks), typed);
  });
}

}  // namespace plimsoll::engine::cuda
