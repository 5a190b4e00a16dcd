// Attention by own kernels: a warp keeps one row and passes over the others in tiles, with a running maximum. Nothing
// grows with T x T. Launches report through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/attention/geometry.h"

namespace plimsoll::engine::cuda {

// y, and log(sum(exp(scores))) of each row as [N,H,T].
void flash_forward(cudaStream_t stream, const Attention& a, const void* q, const void* k, const void* v, void* y,
                   float* stats);

struct FlashGradients {
  const void *dy, *q, *k, *v, *y;
  const float* stats;
  void *dq, *dk, *dv;
  float* row_sums;  // scratch: one a row
};
void flash_backward(cudaStream_t stream, const Attention& a, const FlashGradients& g);

}  // namespace plimsoll::engine::cuda
