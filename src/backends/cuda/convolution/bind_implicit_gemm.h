// Convolutions by own kernels on the matrix units: kUnsupported where the card or the sizes are not for them.
#pragma once

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// Implicit GEMM over few channels, read straight from the image; bias and bias gradient included.
BoundKernel bind_implicit_gemm(Context& context, const BoundNode& node, const Convolution& c);
BoundKernel bind_paired(Context& context, const BoundNode& node, const Convolution& c);

// The weight gradient over some dozens of channels, without a bias gradient.
bool takes_per_tap(const Context& context, const std::string& op, const Convolution& c);
BoundKernel bind_per_tap(Context& context, const BoundNode& node, const Convolution& c);

}  // namespace plimsoll::engine::cuda
