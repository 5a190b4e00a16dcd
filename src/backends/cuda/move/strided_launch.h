// Launches of transpositions, writes of strided views, and paddings. Elements have 1, 2, 4 or 8 bytes.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/common/element.h"
#include "backends/cuda/move/strided_axes.h"

namespace plimsoll::engine::cuda {

void launch_tiled_transpose(const TiledTranspose& tiled, int element_bytes, const void* x, void* y,
                            cudaStream_t stream);

// x[view] = y, the inverse of a strided read. Elements outside the view keep their value.
void launch_write_view(const ViewAxes& view, int element_bytes, const void* y, void* x, cudaStream_t stream);

// `pattern` is one element: the constant.
void launch_pad(const PadAxes& padding, int element_bytes, uint64_t pattern, const void* x, void* y,
                cudaStream_t stream);
void launch_pad_grad(const PadAxes& padding, Element element, const void* dy, void* dx, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
