#pragma once

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// conv2d or conv2d_weight_grad, including bias and bias gradient, in the workspace that plan_im2col() computes.
BoundKernel bind_im2col(Context& context, const BoundNode& node, const Convolution& c);

}  // namespace plimsoll::engine::cuda
