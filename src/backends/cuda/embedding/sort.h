// Tokens sorted by the row they name.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/embedding/workspace.h"

namespace plimsoll::engine::cuda {

// In the workspace, a number for each place of the sorted list.
struct SortedTokens {
  const int32_t* keys = nullptr;   // the row, ascending; those without a row stand last, as row `plan.rows`
  const int32_t* order = nullptr;  // the token; those of one row in their own order
};

SortedTokens sort_tokens(const EmbeddingGrad& plan, const int32_t* ids, void* workspace, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
