// Stable radix sort of token ids, eight bits per pass: first counts the digits of each tile, then scatters every token
// to its position after the tokens of earlier tiles.
#include "backends/cuda/common/device.cuh"
#include "backends/cuda/embedding/sort.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kRounds = kSortTile / kThreads;
static_assert(kThreads == kDigits);

// The input of a pass: the ids in the first pass, later the output of the previous pass.
struct Unsorted {
  const int32_t* keys;
  const int32_t* order;  // null in the first pass: the keys are the ids in their original order
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

// Exclusive prefix sum over the threads of the block.
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

// Each warp handles a contiguous part of the tile. Within a round, equal digits keep the order of their lanes.
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

}  // namespace

SortedTokens sort_tokens(const EmbeddingGrad& plan, const int32_t* ids, void* workspace, cudaStream_t stream) {
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
  check_launch();
  return {from.keys, from.order};
}

}  // namespace plimsoll::engine::cuda
