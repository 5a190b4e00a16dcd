// Own kernels of space-to-depth convolutions (space_to_depth.h). Launches report through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct SpaceToDepthShape {
  int images, h, w, c;   // x
  int fh, fw, channels;  // of the space-to-depth image
  int top, left;
  int outputs, kh, kw, fkh, fkw;  // of the weights, as they are and in space-to-depth form
};

// to[image, fh, fw, channels]: pixels (2 fh + row - top, 2 fw + column - left), zeros outside.
void launch_space_to_depth(const SpaceToDepthShape& shape, Element element, const void* x, void* to,
                           cudaStream_t stream);
// to[o, fkh, fkw, channels] of w[o, kh, kw, c], and back.
void launch_space_to_depth_weights(const SpaceToDepthShape& shape, Element element, const void* w, void* to,
                                   cudaStream_t stream);
void launch_depth_to_space_weights(const SpaceToDepthShape& shape, Element element, const void* deep, void* w,
                                   cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
