// Own kernels of convolutions over few channels with the max pooling of 2 x 2 behind them (pooled.h). Launches
// report through cudaGetLastError().
#pragma once

#include "backends/cuda/convolution/implicit_gemm_launch.h"

namespace plimsoll::engine::cuda {

struct PooledShape {
  ImplicitGemmShape conv;
  int oh, ow;        // of the pooled image
  int lines, pitch;  // of the image, under a stretch, and numbers of one
  int shared;        // bytes
};

// y[n, oh, ow, o] = the largest of relu?(conv(x, w) + bias?) in each window, index its place there. bias may be null.
void launch_pooled_forward(const PooledShape& shape, Element element, const void* x, const void* w, const void* bias,
                           bool relu, void* y, uint8_t* index, int multiprocessors, cudaStream_t stream);

// parts[count, o, width]: sums of dy * x over a share of the windows each, and behind the numbers the sum of dy if
// `one`. dy is the pooled gradient.
void launch_pooled_weight_grad(const PooledShape& shape, Element element, const void* x, const void* dy,
                               const uint8_t* index, bool one, int width, int64_t count, float* parts,
                               cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
