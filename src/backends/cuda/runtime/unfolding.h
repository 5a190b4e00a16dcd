#pragma once

#include "backends/cuda/convolution.h"
#include "backends/cuda/runtime/context.h"

namespace plimsoll::cuda {

// conv2d or conv2d_weight_grad, bias and bias gradient included, in the workspace plan_unfold() asks for.
BoundKernel bind_unfolded(Context& context, const BoundNode& node, const Convolution& c);

}  // namespace plimsoll::cuda
