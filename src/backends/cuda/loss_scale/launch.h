// Launches of loss scaling: the count of gradients that are not finite, and its scalars.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

// Tensors that one launch looks through: as many as a kernel's parameters hold with every driver, 4 KiB.
struct CountTable {
  struct Tensor {
    const void* data;
    int64_t elements;
    int first;  // of its blocks
    Element element;
  };
  static constexpr int kMost = 128;

  Tensor of[kMost];
  int tensors = 0, blocks = 0;
};

// Each block leaves its count in `counts`. With `all` above 0 the block that comes last adds up so many counts from
// `every` on, those of earlier launches among them, and writes the total; `counter` is zero before and after.
void launch_count_not_finite(const CountTable& table, unsigned* counts, const unsigned* every, int64_t all, float* to,
                             unsigned* counter, cudaStream_t stream);

// Outputs may lie over the inputs they follow.
struct LossScaleStep {
  const float *scale, *bad;
  const int64_t *steps, *skipped;
  int64_t growth_steps;
  float* new_scale;
  int64_t *new_steps, *new_skipped;
};
void launch_loss_scale(const LossScaleStep& step, cudaStream_t stream);
void launch_applied_updates(const int64_t* iteration, const int64_t* skipped, int64_t* to, cudaStream_t stream);
void launch_scheduled_rate(const float* rate, const float* other, const int64_t* skipped, const int64_t* known,
                           float* to, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
