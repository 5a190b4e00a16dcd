// Launches of reductions other than sums, cumulative sums and products, and sorts.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/axis/steps.h"
#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

enum class Extreme : uint8_t { kMax, kMin, kProd };

// A NaN among the elements gives a NaN. `from` or `to` may be float32 where the other is not.
void launch_axis_step(const AxisStep& step, Extreme kind, Element from, const void* x, Element to, void* y,
                      cudaStream_t stream);
// index[outer, columns]: the first row with the largest (or smallest) element.
void launch_arg(int64_t outer, int64_t rows, int64_t columns, bool largest, Element element, const void* x,
                int32_t* index, cudaStream_t stream);

struct Cumulation {
  int64_t outer = 1, size = 1, inner = 1;
  bool product = false, reverse = false, exclusive = false;
};
void launch_cumulate(const Cumulation& c, Element element, const void* x, void* y, cudaStream_t stream);

void launch_sort(const RowSort& sort, Element element, const void* x, void* values, int32_t* index, void* workspace,
                 cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
