// Sorts tokens by their row of the embedding matrix.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/embedding/workspace.h"

namespace plimsoll::engine::cuda {

// Arrays in the workspace, one entry per position of the sorted list.
struct SortedTokens {
  const int32_t* keys = nullptr;   // the row, ascending; tokens with an invalid id come last, as row `plan.rows`
  const int32_t* order = nullptr;  // the token; tokens of one row keep their order
};

SortedTokens sort_tokens(const EmbeddingGrad& plan, const int32_t* ids, void* workspace, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
