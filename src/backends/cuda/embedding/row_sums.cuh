// For each row of an embedding matrix: sums dy over the tokens with that id, and passes the sum to a Finish (store it,
// or apply an optimizer update). A group of lanes processes a row and no float atomics are used, so every run gives the
// same bits. Rows with many tokens would delay their lanes. Therefore runs of 64 sorted tokens with the same id are
// summed first by blocks of their own, and then runs of 64 such runs.
//
// A Finish receives the sums:
//   static constexpr bool kMayLeaveRows;                      // whether rows without tokens may be left unchanged
//   __device__ void prepare() const;                          // called once, before any row
//   template <int N> __device__ Held load(int64_t at) const;  // loads its other inputs, N elements from `at` on;
//                                                             // called before the sums are known
//   template <int N> __device__ void store(int64_t at, const float (&sums)[N], Held& held) const;
#pragma once

#include "backends/cuda/embedding/sort.h"
#include "backends/cuda/reduce/column_sums.cuh"

namespace plimsoll::engine::cuda {

inline constexpr int kRowThreads = 256;
static_assert(kRowThreads == kSumThreads);

// A row and its range in the sorted list; row is -1 if there is none.
struct RowTokens {
  int64_t row = -1;
  int begin = 0, end = 0;
};

// Assigns rows to groups of lanes: every row of the matrix in turn...
struct EveryRow {
  int64_t rows;
  const int32_t* starts;

  __device__ RowTokens tokens(int64_t at) const {
    if (at >= rows) return {};
    return {at, starts[at], starts[at + 1]};
  }
};
// ... or only the rows that occur in the ids: a group takes a position in the sorted list and has a row if that
// position is the row's first.
struct NamedRows {
  int64_t count, rows;
  const int32_t* keys;

  __device__ RowTokens tokens(int64_t at) const {
    if (at >= count) return {};
    const int key = keys[at];
    if (key >= rows || (at > 0 && keys[at - 1] == key)) return {};
    // Most runs are short: exponential search, then binary search.
    int64_t last = at, step = 1;
    while (last + step < count && keys[last + step] == key) {
      last += step;
      step *= 2;
    }
    int64_t end = min(last + step, count);
    while (end - last > 1) {
      const int64_t middle = (last + end) / 2;
      if (keys[middle] == key)
        last = middle;
      else
        end = middle;
    }
    return {key, static_cast<int>(at), static_cast<int>(end)};
  }
};

// starts[row]: the first sorted token whose id is this row or a later one.
template <typename Finish>
__global__ void __launch_bounds__(kRowThreads)
    find_starts(int64_t tokens, int64_t rows, const int32_t* __restrict__ keys, int32_t* __restrict__ starts,
                Finish finish) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (row > rows) return;
  if (row == 0) finish.prepare();
  int64_t low = 0, high = tokens;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < row)
      low = middle + 1;
    else
      high = middle;
  }
  starts[row] = static_cast<int32_t>(low);
}

template <typename T, int N>
__device__ void add_pack(const T* from, float (&sums)[1][N]) {
  const auto pack = load_pack<N>(from);
#pragma unroll
  for (int k = 0; k < N; ++k) sums[0][k] += to_float(pack.v[k]);
}

// Sums runs of `length` tokens that all have the same id. Runs with several ids are skipped; their sums are not read. A
// run has 64 items: tokens, indexed through `order`, or, if `order` is null, shorter runs.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    sum_runs(int64_t rows, int length, int packs, int lanes, const T* __restrict__ items,
             const int32_t* __restrict__ keys, const int32_t* __restrict__ order, float* __restrict__ sums) {
  __shared__ float shared[N * kRowThreads];
  const int64_t token = static_cast<int64_t>(blockIdx.x) * length;
  if (keys[token] != keys[token + length - 1] || keys[token] >= rows) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRunOfTokens;
  const int slot = static_cast<int>(threadIdx.x) / lanes, slots = kRowThreads / lanes;
  const int pack = static_cast<int>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes;
  float sum[1][N] = {};
  if (pack < packs) {
#pragma unroll 4
    for (int i = slot; i < kRunOfTokens; i += slots) {
      const int64_t item = order != nullptr ? order[first + i] : first + i;
      add_pack<T, N>(items + (item * packs + pack) * N, sum);
    }
  }
  join_slots(sum, shared, lanes);
  if (slot != 0 || pack >= packs) return;
#pragma unroll
  for (int k = 0; k < N; ++k) sums[(static_cast<int64_t>(blockIdx.x) * packs + pack) * N + k] = sum[0][k];
}

// The items that a row adds up, in the order of the sorted list: tokens, runs and long runs.
template <typename T, int N>
struct RowItems {
  const T* __restrict__ dy;
  const int32_t* __restrict__ order;
  const float* __restrict__ runs;
  const float* __restrict__ long_runs;
  int packs;

  __device__ void add(const RowTokens& row, int pack, float (&sum)[1][N]) const {
    const auto in = [&](int64_t item) { return (item * packs + pack) * N; };
    const auto stop_before_next = [&](int at, int length) { return min(row.end, (at / length + 1) * length); };
    int at = row.begin;
    while (at < row.end) {
      if (at % kLongRun == 0 && row.end - at >= kLongRun) {
#pragma unroll 4
        for (; row.end - at >= kLongRun; at += kLongRun) add_pack<float, N>(long_runs + in(at / kLongRun), sum);
      } else if (at % kRunOfTokens == 0 && row.end - at >= kRunOfTokens) {
        const int stop = stop_before_next(at, kLongRun);
#pragma unroll 4
        for (; stop - at >= kRunOfTokens; at += kRunOfTokens) add_pack<float, N>(runs + in(at / kRunOfTokens), sum);
      } else {
        const int stop = stop_before_next(at, kRunOfTokens);
#pragma unroll 4
        for (; at < stop; ++at) add_pack<T, N>(dy + in(order[at]), sum);
      }
    }
  }
};

// `lanes` threads per row; the blocks along y split its packs.
template <typename T, int N, typename Rows, typename Finish>
__global__ void __launch_bounds__(kRowThreads) sum_rows(Rows rows, RowItems<T, N> items, int lanes, Finish finish) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kRowThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  const RowTokens row = rows.tokens(at);
  if (row.row < 0) return;
  for (int pack = static_cast<int>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes; pack < items.packs;
       pack += static_cast<int>(gridDim.y) * lanes) {
    const int64_t place = (row.row * items.packs + pack) * N;
    auto held = finish.template load<N>(place);
    float sum[1][N] = {};
    items.add(row, pack, sum);
    finish.template store<N>(place, sum[0], held);
  }
}

inline int lanes_for_packs(int packs, int most) {
  int lanes = 1;
  while (lanes < packs && lanes < most) lanes *= 2;
  return lanes;
}

template <typename T, int N, typename Finish>
void sum_sorted_rows(const EmbeddingGrad& plan, const T* dy, const SortedTokens& sorted, bool split,
                     const Finish& finish, char* workspace, cudaStream_t stream) {
  auto* runs = reinterpret_cast<float*>(workspace + plan.sums);
  auto* long_runs = reinterpret_cast<float*>(workspace + plan.long_sums);
  const int packs = static_cast<int>(plan.width) / N, lanes = lanes_for_packs(packs, kWarp);
  const unsigned tiles = blocks_for(packs, lanes), shared = split ? tiles : 1;
  if (plan.runs > 0)
    sum_runs<T, N><<<dim3(static_cast<unsigned>(plan.runs), tiles), kRowThreads, 0, stream>>>(
        plan.rows, kRunOfTokens, packs, lanes, dy, sorted.keys, sorted.order, runs);
  if (plan.long_runs > 0)
    sum_runs<float, N><<<dim3(static_cast<unsigned>(plan.long_runs), tiles), kRowThreads, 0, stream>>>(
        plan.rows, kLongRun, packs, lanes, runs, sorted.keys, nullptr, long_runs);
  const RowItems<T, N> items{dy, sorted.order, runs, long_runs, packs};
  const auto grid = [&](int64_t groups) { return dim3(blocks_for(groups, kRowThreads / lanes), shared); };
  if (plan.every_row) {
    auto* starts = reinterpret_cast<int32_t*>(workspace + plan.starts);
    find_starts<<<blocks_for(plan.rows + 1, kRowThreads), kRowThreads, 0, stream>>>(plan.tokens, plan.rows, sorted.keys,
                                                                                    starts, finish);
    sum_rows<T, N><<<grid(plan.rows), kRowThreads, 0, stream>>>(EveryRow{plan.rows, starts}, items, lanes, finish);
  } else if constexpr (Finish::kMayLeaveRows) {
    sum_rows<T, N><<<grid(plan.tokens), kRowThreads, 0, stream>>>(NamedRows{plan.tokens, plan.rows, sorted.keys}, items,
                                                                  lanes, finish);
  }
  check_launch();
}

// `split`: a row's packs are distributed over several groups of lanes, one pack per lane, instead of a loop in one
// group.
template <typename T, typename Finish>
void launch_row_sums(const EmbeddingGrad& plan, const T* dy, const int32_t* ids, bool split, const Finish& finish,
                     void* workspace, cudaStream_t stream) {
  const SortedTokens sorted = sort_tokens(plan, ids, workspace, stream);
  auto* space = static_cast<char*>(workspace);
  if (plan.width % kPack<T> == 0)
    sum_sorted_rows<T, kPack<T>>(plan, dy, sorted, split, finish, space, stream);
  else
    sum_sorted_rows<T, 1>(plan, dy, sorted, split, finish, space, stream);
}

}  // namespace plimsoll::engine::cuda
