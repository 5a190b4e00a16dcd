// y = a b + bias?, relu? for few columns and long sums (split_k.h). The arithmetic is float32; the order of additions
// depends only on the shapes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct SplitKProduct {
  int64_t m, n, k;
  Element element;
  const void *a, *b, *bias;  // bias may be null
  bool relu;
  void* y;
  float* sums;  // chunks * m * n floats of workspace
};

void launch_split_k(const SplitKProduct& product, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
