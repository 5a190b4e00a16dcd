// Split-K GEMM: y[m,n] = a[m,k] b[k,n] with few columns and a long sum. The product is bound by reading `a` once, and
// the tensor cores would be mostly idle. How k is split depends only on the shapes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plimsoll::engine::cuda {

inline constexpr const char* kSplitKKernel = "skinny";  // the kernel's name in plans (older name of split-K)

inline constexpr int64_t kSplitKColumns = 32;
inline constexpr int kSplitKWarps = 8, kSplitKWarpRows = 4;  // warps per block, and rows of `a` per warp
inline constexpr int kSplitKStep = 128;                      // terms of the sum that a block keeps in shared memory

inline bool is_split_k(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLeastTerms = 4096, kMostRows = 1024;
  return n <= kSplitKColumns && k >= kLeastTerms && m <= kMostRows;
}

struct SplitKPlan {
  int64_t tiles;        // tiles of rows
  int64_t chunks;       // chunks of k; each writes m * n float32 to the workspace
  int64_t chunk_terms;  // a multiple of kSplitKStep
};

inline SplitKPlan plan_split_k(int64_t m, int64_t k) {
  constexpr int64_t kBlocks = 528, kRows = int64_t{kSplitKWarps} * kSplitKWarpRows;
  SplitKPlan plan{};
  plan.tiles = (m + kRows - 1) / kRows;
  const int64_t steps = (k + kSplitKStep - 1) / kSplitKStep;
  const int64_t wanted = std::max<int64_t>(1, kBlocks / plan.tiles);
  plan.chunk_terms = (steps + wanted - 1) / wanted * kSplitKStep;
  plan.chunks = (k + plan.chunk_terms - 1) / plan.chunk_terms;
  return plan;
}

}  // namespace plimsoll::engine::cuda
