// Launches of loss scaling: the count of non-finite gradient elements, and the update of the loss scale's scalars.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

// The tensors of one launch: as many as fit into 4 KiB of kernel parameters, the limit that every driver supports.
struct CountTable {
  struct Tensor {
    const void* data;
    int64_t elements;
    int first;  // index of its first block
    Element element;
  };
  static constexpr int kMost = 128;

  Tensor of[kMost];
  int tensors = 0, blocks = 0;
};

// Each block writes its count to `counts`. If `all` > 0, the block that finishes last adds up `all` counts starting at
// `every`, including those of earlier launches, and writes the total. `counter` is zero before and after.
void launch_count_not_finite(const CountTable& table, unsigned* counts, const unsigned* every, int64_t all, float* to,
                             unsigned* counter, cudaStream_t stream);

// An output may have the same address as the input it replaces.
struct LossScaleStep {
  const float *scale, *bad;
  const int64_t *steps, *skipped;
  int64_t growth_steps;
  float* new_scale;
  int64_t *new_steps, *new_skipped;
};
void launch_loss_scale(const LossScaleStep& step, cudaStream_t stream);
void launch_applied_updates(const int64_t* iteration, const int64_t* skipped, int64_t* to, cudaStream_t stream);
void launch_count_periods(const int64_t* count, int64_t period, int64_t* periods, float* pending, cudaStream_t stream);
void launch_scheduled_rate(const float* rate, const float* other, const int64_t* skipped, const int64_t* known,
                           float* to, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
