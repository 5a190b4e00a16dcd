// Launches of resample and adaptive_max_pool. Tensors are dense and 16-byte aligned. Sums and comparisons are float32,
// in the same order in every run.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/move/resample.h"

namespace plimsoll::engine::cuda {

// `table` has ResampleLines::table_bytes(); it is computed anew by each launch.
void launch_resample(const ResampleLines& l, ResampleMethod method, Element element, const void* x, void* y,
                     void* table, cudaStream_t stream);
void launch_resample_grad(const ResampleLines& l, ResampleMethod method, Element element, const void* dy, void* dx,
                          void* table, cudaStream_t stream);
// `index` is the position of the maximum along the dimension.
void launch_adaptive_max(const ResampleLines& l, Element element, const void* x, void* y, int32_t* index,
                         cudaStream_t stream);
void launch_adaptive_max_grad(const ResampleLines& l, Element element, const void* dy, const int32_t* index, void* dx,
                              cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
