// The workspace of scatter_add: the ids of all outer slices in one list, and what the gradient of an embedding needs.
#pragma once

#include "backends/cuda/embedding/workspace.h"
#include "base/bytes.h"

namespace plimsoll::engine::cuda {

struct ScatterAdd {
  EmbeddingGrad grad;
  Bytes ids = 0;  // bytes of the list at the beginning of the workspace; 0: there is one slice, and its ids are used
  Bytes bytes() const { return ids + grad.bytes; }
};

// Updates [outer, count, inner] are the gradient of an embedding matrix with outer * size rows.
inline ScatterAdd plan_scatter_add(int64_t outer, int64_t size, int64_t inner, int64_t count) {
  return {plan_embedding_grad(outer * count, outer * size, inner), outer > 1 ? align_up(outer * count * 4) : 0};
}

}  // namespace plimsoll::engine::cuda
