// The two kernels of attention on the CPU: plain loops for few positions, and tiles that are multiplied as matrices.
#pragma once

#include "backends/common/node_view.h"
#include "base/bytes.h"
#include "ops/attention.h"

namespace plimsoll::engine::cpu {

// The addresses of a node's tensors. In the forward pass only q, k, v, y and stats are set, and y and stats are
// written.
struct AttentionArrays {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *dy = nullptr;
  float *y = nullptr, *stats = nullptr;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
  AttentionMasks<float> masks;
};

struct AttentionKernel {
  Bytes workspace = 0;  // for all threads
  double efficiency = 1;
  void (*run)(const AttentionForm&, const AttentionArrays&, int threads, void* workspace) = nullptr;
};

AttentionKernel plain_attention(const AttentionForm& form, bool backward, int threads);
AttentionKernel tiled_attention(const AttentionForm& form, bool backward, int threads);

}  // namespace plimsoll::engine::cpu
