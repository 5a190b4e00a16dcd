// Kernels of convolutions over few input channels fused with a 2 x 2 max pooling (pooled.h). The launch functions
// report errors through cudaGetLastError().
#pragma once

#include "backends/cuda/convolution/implicit_gemm_launch.h"

namespace plimsoll::engine::cuda {

struct PooledShape {
  ImplicitGemmShape conv;
  int oh, ow;        // size of the pooled image
  int lines, pitch;  // image rows under a segment, and their row pitch in elements
  int shared;        // bytes
};

// y[n, oh, ow, o] = the maximum of relu?(conv(x, w) + bias?) over each window; `index` is its position in the window (0
// to 3). bias may be null.
void launch_pooled_forward(const PooledShape& shape, Element element, const void* x, const void* w, const void* bias,
                           bool relu, void* y, uint8_t* index, int multiprocessors, cudaStream_t stream);

// parts[count, o, width]: partial weight gradients, each summed over a share of the windows. If `one`, column `numbers`
// holds the sum of dy. dy is the gradient of the pooled image.
void launch_pooled_weight_grad(const PooledShape& shape, Element element, const void* x, const void* dy,
                               const uint8_t* index, bool one, int width, int64_t count, float* parts,
                               cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
