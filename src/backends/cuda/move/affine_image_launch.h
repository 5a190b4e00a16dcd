// Launch of affine_image. Tensors are dense; sums are float32.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "ops/affine_image.h"

namespace plimsoll::engine::cuda {

struct AffineImages {
  int64_t batch = 0;
  int height = 0, width = 0, channels = 0;
  FillMode mode = FillMode::kConstant;
  bool nearest = false;
  float fill = 0;
};

void launch_affine_image(const AffineImages& images, Element element, Element transform_element, const void* x,
                         const void* transforms, void* y, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
