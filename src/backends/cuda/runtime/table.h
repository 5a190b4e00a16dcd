// Launches of embedding and its gradient. An id that names no row reads as NaNs and takes no gradient.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/runtime/element.h"
#include "backends/cuda/table_plan.h"

namespace plimsoll::cuda {

void launch_embedding(int64_t tokens, int64_t rows, int width, Element table_element, const void* table,
                      const int32_t* ids, Element element, void* y, cudaStream_t stream);
// Writes every row of dtable; tokens of a row are added in an order that depends on the ids alone.
void launch_embedding_grad(const TableGrad& plan, Element element, const void* dy, const int32_t* ids,
                           Element table_element, void* dtable, void* workspace, cudaStream_t stream);

}  // namespace plimsoll::cuda
