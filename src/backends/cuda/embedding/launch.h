// Launches of embedding, its gradient, and optimizer updates that apply the gradient row by row. An id that is not a
// row of the embedding matrix reads as NaNs and gets no gradient.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/embedding/workspace.h"

namespace plimsoll::engine::cuda {

void launch_embedding(int64_t tokens, int64_t rows, int width, Element table_element, const void* table,
                      const int32_t* ids, Element element, void* y, cudaStream_t stream);
// Writes every row of dtable. The tokens of a row are added in an order that depends only on the ids.
void launch_embedding_grad(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                           Element table_element, void* dtable, void* workspace, cudaStream_t stream);

// The inputs and outputs of an update besides dy and the ids. Each new tensor may have the address of the old one.
struct SgdRows {
  const float* w = nullptr;
  float* new_w = nullptr;
  const float* state = nullptr;  // null if there is no momentum
  float* new_state = nullptr;
  const float* rate = nullptr;
  float momentum = 0, decay = 0;
  bool nesterov = false;
};
struct AdamRows {
  const float *w = nullptr, *m = nullptr, *v = nullptr;
  float *new_w = nullptr, *new_m = nullptr, *new_v = nullptr;
  const float* rate = nullptr;
  const int64_t* iteration = nullptr;
  double beta_1 = 0, beta_2 = 0;  // rounded to float32
  float rest_1 = 0, rest_2 = 0;   // 1 - beta
  float epsilon = 0, decay = 0;
};
// If the plan does not cover every row, only rows that occur in the ids change; for the others new_w is a copy of w.
void launch_sgd_rows(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                     const SgdRows& update, void* workspace, cudaStream_t stream);
void launch_adam_rows(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                      const AdamRows& update, void* workspace, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
