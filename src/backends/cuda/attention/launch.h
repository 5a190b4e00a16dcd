// Attention by our own kernels with online softmax: a warp keeps one row and loops over the others in tiles, with a
// running maximum. No memory grows with T x T. The launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/attention/geometry.h"

namespace plimsoll::engine::cuda {

// Addresses of masks; null if there is none.
struct MaskAddresses {
  const void *q = nullptr, *k = nullptr, *m = nullptr;
};

// Computes y, and stats[N,H,Tq] = log(sum(exp(scores))) of each row.
void flash_forward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const void* q, const void* k,
                   const void* v, void* y, float* stats);

struct FlashGradients {
  const void *dy, *q, *k, *v, *y;
  const float* stats;
  void *dq, *dk, *dv;
  float* row_sums;  // scratch: one float per query
  float* blind;     // scratch: 1 for queries that see no position; null if all see one
};
void flash_backward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const FlashGradients& g);

}  // namespace plimsoll::engine::cuda
