// Launches of sums. `counters` are zero before and after; `partials` are in the workspace. The order of additions
// depends only on the shapes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/reduce/pieces.h"

namespace plimsoll::engine::cuda {

// The memory through which the last block of a sum gets the results of the other blocks.
struct SumSpace {
  void* partials = nullptr;
  unsigned* counters = nullptr;
};

// to = sum over x of l1 * |x| + l2 * x^2
void launch_penalty(int64_t elements, Element element, const void* x, float l1, float l2, float* to,
                    const SumSpace& space, cudaStream_t stream);
// to = scale * sum of weight * v. `rows_per_weight` adjacent values share one weight; weights may be null.
void launch_weighted_sum(int64_t rows, const float* v, const float* scale, const float* weights,
                         int64_t rows_per_weight, float* to, const SumSpace& space, cudaStream_t stream);
void launch_weighted_sum_grad(int64_t rows, const float* dtotal, const float* scale, const float* weights,
                              int64_t rows_per_weight, float* dv, cudaStream_t stream);
void launch_clip_factor(const float* squared_norm, float limit, float* to, cudaStream_t stream);

// to[outer, columns] = sum over the middle axis of x[outer, rows, columns].
void launch_axis_sum(int64_t outer, int64_t rows, int64_t columns, Element from, const void* x, Element element,
                     void* to, const SumSpace& space, cudaStream_t stream);

// dgamma[c] = sum over rows of dy * (x - mean) * rstd, dbeta[c] = sum of dy. Needs 2 * plan.partials() partial sums.
void launch_layer_norm_param_grad(const ColumnSums& plan, Element element, const void* dy, const void* x,
                                  const float* mean, const float* rstd, float* dgamma, float* dbeta,
                                  const SumSpace& space, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
