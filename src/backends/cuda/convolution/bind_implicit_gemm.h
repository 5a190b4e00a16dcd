// Convolutions by own kernels on the matrix units: kUnsupported where the card or the sizes are not for them.
#pragma once

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/driver/context.h"

namespace plimsoll::cuda {

// Over few channels straight from the image; bias and bias gradient included.
BoundKernel bind_straight(Context& context, const BoundNode& node, const Convolution& c);
BoundKernel bind_paired(Context& context, const BoundNode& node, const Convolution& c);

// The weight gradient over some dozens of channels, without a bias gradient.
bool takes_taps(const Context& context, const std::string& op, const Convolution& c);
BoundKernel bind_taps(Context& context, const BoundNode& node, const Convolution& c);

}  // namespace plimsoll::cuda
