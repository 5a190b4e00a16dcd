// Own kernels of folded convolutions (fold_plan.h). Launches report through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::cuda {

struct FoldShape {
  int images, h, w, c;   // x
  int fh, fw, channels;  // folded
  int top, left;
  int outputs, kh, kw, fkh, fkw;  // of the weights, as they are and folded
};

// to[image, fh, fw, channels]: pixels (2 fh + row - top, 2 fw + column - left), zeros outside.
void launch_fold_image(const FoldShape& shape, Element element, const void* x, void* to, cudaStream_t stream);
// to[o, fkh, fkw, channels] of w[o, kh, kw, c], and back.
void launch_fold_weights(const FoldShape& shape, Element element, const void* w, void* to, cudaStream_t stream);
void launch_unfold_weights(const FoldShape& shape, Element element, const void* folded, void* w, cudaStream_t stream);

}  // namespace plimsoll::cuda
