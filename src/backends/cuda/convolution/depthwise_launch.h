// Depthwise convolutions with one output per channel: square kernels of 3, 5 or 7 taps, strides of 1 or 2, no dilation
// (has_depthwise_kernel in geometry.h).
// Activations are NHWC and weights [tap, channel]. Sums are accumulated in float32 in an order that is the same in
// every run. The launch functions report errors through cudaGetLastError().
#pragma once

#include "backends/cuda/convolution/launch.h"

namespace plimsoll::engine::cuda {

// y = relu?(conv(x, w) + bias?). bias may be null.
void depthwise_forward(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* w,
                       const void* bias, bool relu, void* y);
void depthwise_input_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* dy,
                          const void* w, void* dx);
// `sums`: parts * kh*kw * c floats; unused if parts is 1. Fewer parts are used if they fill the card.
void depthwise_weight_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x,
                           const void* dy, void* dw, float* sums, int64_t parts);

}  // namespace plimsoll::engine::cuda
