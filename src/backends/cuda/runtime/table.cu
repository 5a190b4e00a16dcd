// embedding gathers rows. Its gradient sorts the tokens by row (a stable radix sort, eight bits a pass), finds where
// each row's tokens begin, and lets a warp a row add them up: no atomics on floats, so every run gives the same bits.
// Rows with many tokens would keep their warp long after the others; the sums of whole runs of 64 tokens that name one
// row are therefore taken beforehand, by blocks of their own.
#include "backends/cuda/runtime/table.h"

#include <type_traits>

#include "backends/cuda/runtime/column_sums.cuh"

namespace plimsoll::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kRounds = kSortTile / kThreads;
static_assert(kThreads == kDigits && kThreads == kSumThreads);

template <typename From, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    gather_rows(int64_t tokens, int64_t rows, int packs, int lanes, const From* __restrict__ table,
                const int32_t* __restrict__ ids, To* __restrict__ y) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  if (token >= tokens) return;
  const int64_t id = ids[token];
  const bool there = id >= 0 && id < rows;
  const From* from = table + (there ? id : 0) * packs * N;
  To* to = y + token * packs * N;
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x) % lanes; p < packs; p += lanes) {
    const auto pack = load_pack<N>(from + p * N);
    Pack<To, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = from_float<To>(there ? to_float(pack.v[k]) : NAN);
    store_pack(to + p * N, result);
  }
}

// What a pass reads: the ids themselves at first, then what the pass before left.
struct Unsorted {
  const int32_t* keys;
  const int32_t* order;  // null: keys are ids in their order
  int64_t rows;

  __device__ int key(int64_t at) const {
    const int key = keys[at];
    return !order && (key < 0 || key >= rows) ? static_cast<int>(rows) : key;
  }
  __device__ int token(int64_t at) const { return order ? order[at] : static_cast<int>(at); }
};

__device__ int digit_of(int key, int shift) {
  return (key >> shift) & (kDigits - 1);
}

// counts[block][digit]
__global__ void __launch_bounds__(kThreads) count_digits(int64_t tokens, Unsorted from, int shift, unsigned* counts) {
  __shared__ unsigned count[kDigits];
  count[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < kRounds; ++r) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kSortTile + r * kThreads + threadIdx.x;
    if (at < tokens) atomicAdd(&count[digit_of(from.key(at), shift)], 1U);
  }
  __syncthreads();
  counts[static_cast<int64_t>(blockIdx.x) * kDigits + threadIdx.x] = count[threadIdx.x];
}

// The sum over all threads before this one.
__device__ unsigned sum_before(unsigned v, unsigned* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  unsigned running = v;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const unsigned below = __shfl_up_sync(kAllLanes, running, offset);
    if (lane >= offset) running += below;
  }
  if (lane == kWarp - 1) scratch[warp] = running;
  __syncthreads();
  unsigned before = running - v;
  for (int w = 0; w < warp; ++w) before += scratch[w];
  return before;
}

// Each warp has a stretch of the tile of its own; inside a round, equal digits keep the order of their lanes.
__global__ void __launch_bounds__(kThreads)
    scatter_by_digit(int64_t tokens, Unsorted from, int shift, const unsigned* __restrict__ counts,
                     int32_t* __restrict__ keys, int32_t* __restrict__ order) {
  __shared__ unsigned next[kWarps][kDigits];
  __shared__ unsigned scratch[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSortTile + warp * kRounds * kWarp + lane;
  int held_key[kRounds], held_token[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t at = first + r * kWarp;
    held_key[r] = at < tokens ? from.key(at) : -1;
    held_token[r] = at < tokens ? from.token(at) : -1;
  }
  for (int d = lane; d < kDigits; d += kWarp) next[warp][d] = 0;
  __syncwarp();
  const auto peers_of = [&](int r) {
    return __match_any_sync(kAllLanes, held_key[r] < 0 ? kDigits : digit_of(held_key[r], shift));
  };
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const unsigned peers = peers_of(r);
    if (held_key[r] >= 0 && lane == __ffs(peers) - 1) next[warp][digit_of(held_key[r], shift)] += __popc(peers);
    __syncwarp();
  }
  unsigned total = 0, before = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) {
    const unsigned here = counts[static_cast<int64_t>(b) * kDigits + threadIdx.x];
    if (b < blockIdx.x) before += here;
    total += here;
  }
  unsigned position = sum_before(total, scratch) + before;  // its barrier also ends the counting above
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const unsigned here = next[w][threadIdx.x];
    next[w][threadIdx.x] = position;
    position += here;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const unsigned peers = peers_of(r);
    const bool valid = held_key[r] >= 0;
    const int digit = valid ? digit_of(held_key[r], shift) : 0;
    const unsigned to = next[warp][digit] + __popc(peers & ((1U << lane) - 1));
    __syncwarp();
    if (valid) {
      if (lane == __ffs(peers) - 1) next[warp][digit] += __popc(peers);
      keys[to] = held_key[r];
      order[to] = held_token[r];
    }
    __syncwarp();
  }
}

// starts[row]: the first sorted token that names this row or a later one.
__global__ void __launch_bounds__(kThreads)
    find_starts(int64_t tokens, int64_t rows, const int32_t* __restrict__ keys, int32_t* __restrict__ starts) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row > rows) return;
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

// Sums of runs whose tokens all name one row; other runs are left alone, and not read.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_runs(int64_t rows, int packs, int lanes, const T* __restrict__ dy, const int32_t* __restrict__ keys,
             const int32_t* __restrict__ order, float* __restrict__ sums) {
  __shared__ float shared[N * kThreads];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRunOfTokens;
  if (keys[first] != keys[first + kRunOfTokens - 1] || keys[first] >= rows) return;
  const int slot = static_cast<int>(threadIdx.x) / lanes, slots = kThreads / lanes;
  const int pack = static_cast<int>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes;
  float sum[1][N] = {};
  if (pack < packs) {
#pragma unroll 4
    for (int i = slot; i < kRunOfTokens; i += slots)
      add_pack<T, N>(dy + (static_cast<int64_t>(order[first + i]) * packs + pack) * N, sum);
  }
  join_slots(sum, shared, lanes);
  if (slot != 0 || pack >= packs) return;
#pragma unroll
  for (int k = 0; k < N; ++k) sums[(static_cast<int64_t>(blockIdx.x) * packs + pack) * N + k] = sum[0][k];
}

template <typename T, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    sum_rows(int64_t rows, int packs, const T* __restrict__ dy, const int32_t* __restrict__ starts,
             const int32_t* __restrict__ order, const float* __restrict__ sums, To* __restrict__ dtable) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= rows) return;
  const int begin = starts[row], end = starts[row + 1];
  for (int pack = static_cast<int>(threadIdx.x) % kWarp; pack < packs; pack += kWarp) {
    float sum[1][N] = {};
    int at = begin;
    while (at < end) {
      if (at % kRunOfTokens == 0 && at + kRunOfTokens <= end) {
        const float* run = sums + (static_cast<int64_t>(at / kRunOfTokens) * packs + pack) * N;
        add_pack<float, N>(run, sum);
        at += kRunOfTokens;
        continue;
      }
      const int stop = min(end, (at / kRunOfTokens + 1) * kRunOfTokens);
#pragma unroll 4
      for (; at < stop; ++at) add_pack<T, N>(dy + (static_cast<int64_t>(order[at]) * packs + pack) * N, sum);
    }
    Pack<To, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = from_float<To>(sum[0][k]);
    store_pack(dtable + (row * packs + pack) * N, result);
  }
}

int lanes_for_packs(int packs, int most) {
  int lanes = 1;
  while (lanes < packs && lanes < most) lanes *= 2;
  return lanes;
}

// f.operator()<From, To>(): one of them is float32, or both are the same.
template <typename F>
void with_elements(Element from, Element to, F f) {
  with_element(from, [&]<typename From>() {
    with_element(to, [&]<typename To>() {
      constexpr bool kGoes = std::is_same_v<From, To> || std::is_same_v<From, float> || std::is_same_v<To, float>;
      if constexpr (kGoes) f.template operator()<From, To>();
    });
  });
}

template <typename T, typename To, int N>
void sum_tokens(const TableGrad& plan, const T* dy, const int32_t* keys, const int32_t* order, To* dtable,
                char* workspace, cudaStream_t stream) {
  auto* starts = reinterpret_cast<int32_t*>(workspace + plan.starts);
  auto* sums = reinterpret_cast<float*>(workspace + plan.sums);
  const int packs = static_cast<int>(plan.width) / N, lanes = lanes_for_packs(packs, kWarp);
  find_starts<<<blocks_for(plan.rows + 1, kThreads), kThreads, 0, stream>>>(plan.tokens, plan.rows, keys, starts);
  if (plan.runs > 0) {
    const dim3 grid(static_cast<unsigned>(plan.runs), blocks_for(packs, lanes));
    sum_runs<T, N><<<grid, kThreads, 0, stream>>>(plan.rows, packs, lanes, dy, keys, order, sums);
  }
  sum_rows<T, To, N>
      <<<blocks_for(plan.rows, kWarps), kThreads, 0, stream>>>(plan.rows, packs, dy, starts, order, sums, dtable);
  check_launch();
}

}  // namespace

void launch_embedding(int64_t tokens, int64_t rows, int width, Element table_element, const void* table,
                      const int32_t* ids, Element element, void* y, cudaStream_t stream) {
  with_elements(table_element, element, [&]<typename From, typename To>() {
    const auto launch = [&]<int N>() {
      const int packs = width / N, lanes = lanes_for_packs(packs, kThreads);
      gather_rows<From, To, N><<<blocks_for(tokens, kThreads / lanes), kThreads, 0, stream>>>(
          tokens, rows, packs, lanes, static_cast<const From*>(table), ids, static_cast<To*>(y));
    };
    if (width % kPack<To> == 0)
      launch.template operator()<kPack<To>>();
    else
      launch.template operator()<1>();
  });
  check_launch();
}

void launch_embedding_grad(const TableGrad& plan, Element element, const void* dy, const int32_t* ids,
                           Element table_element, void* dtable, void* workspace, cudaStream_t stream) {
  auto* space = static_cast<char*>(workspace);
  auto* counts = reinterpret_cast<unsigned*>(space + plan.counts);
  const auto blocks = static_cast<unsigned>(plan.sort_blocks);
  Unsorted from{ids, nullptr, plan.rows};
  for (int pass = 0; pass < plan.passes; ++pass) {
    auto* keys = reinterpret_cast<int32_t*>(space + plan.keys[pass % 2]);
    auto* order = reinterpret_cast<int32_t*>(space + plan.order[pass % 2]);
    count_digits<<<blocks, kThreads, 0, stream>>>(plan.tokens, from, pass * kDigitBits, counts);
    scatter_by_digit<<<blocks, kThreads, 0, stream>>>(plan.tokens, from, pass * kDigitBits, counts, keys, order);
    from = {keys, order, plan.rows};
  }
  with_elements(element, table_element, [&]<typename T, typename To>() {
    const auto* gradient = static_cast<const T*>(dy);
    if (plan.width % kPack<T> == 0)
      sum_tokens<T, To, kPack<T>>(plan, gradient, from.keys, from.order, static_cast<To*>(dtable), space, stream);
    else
      sum_tokens<T, To, 1>(plan, gradient, from.keys, from.order, static_cast<To*>(dtable), space, stream);
  });
}

}  // namespace plimsoll::cuda
