// Binds convolutions to our own tensor-core kernels. Returns kUnsupported if the card or the shape is not supported.
#pragma once

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// Implicit GEMM over few input channels, including bias and bias gradient.
BoundKernel bind_implicit_gemm(Context& context, const BoundNode& node, const Convolution& c);
BoundKernel bind_paired(Context& context, const BoundNode& node, const Convolution& c);

// The per-tap weight gradient over 16 to 64 input channels, without the bias gradient.
bool takes_per_tap(const Context& context, const Convolution& c);
BoundKernel bind_per_tap(Context& context, const BoundNode& node, const Convolution& c);

}  // namespace plimsoll::engine::cuda
