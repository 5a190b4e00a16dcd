// Attention by our own kernels with online softmax: a warp keeps one row and loops over the others in tiles, with a
// running maximum. No memory grows with T x T. The launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/attention/geometry.h"

namespace plimsoll::engine::cuda {

// Computes y, and stats[N,H,T] = log(sum(exp(scores))) of each row.
void flash_forward(cudaStream_t stream, const Attention& a, const void* q, const void* k, const void* v, void* y,
                   float* stats);

struct FlashGradients {
  const void *dy, *q, *k, *v, *y;
  const float* stats;
  void *dq, *dk, *dv;
  float* row_sums;  // scratch: one float per row
};
void flash_backward(cudaStream_t stream, const Attention& a, const FlashGradients& g);

}  // namespace plimsoll::engine::cuda
