// Kernels of space-to-depth convolutions (space_to_depth.h). Launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct SpaceToDepthShape {
  int images, h, w, c;   // x
  int fh, fw, channels;  // size of the space-to-depth image
  int top, left;
  int outputs, kh, kw, fkh, fkw;  // weights: kernel size as given, and in space-to-depth form
};

// to[image, fh, fw, channels]: pixels (2 fh + row - top, 2 fw + column - left); zeros outside the image.
void launch_space_to_depth(const SpaceToDepthShape& shape, Element element, const void* x, void* to,
                           cudaStream_t stream);
// Converts weights w[o, kh, kw, c] to to[o, fkh, fkw, channels], and back.
void launch_space_to_depth_weights(const SpaceToDepthShape& shape, Element element, const void* w, void* to,
                                   cudaStream_t stream);
void launch_depth_to_space_weights(const SpaceToDepthShape& shape, Element element, const void* deep, void* w,
                                   cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
