// Direct convolutions, channel sums and bias + relu. Sums are accumulated in float32 in an order that is the same in
// every run. The launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include "base/tensor.h"

namespace plimsoll::engine::cuda {

// Sizes as in Convolution. The strides locate the weight of (tap, channel within its group, output channel).
struct DirectConvolution {
  int n, h, w, c, oh, ow, o, kh, kw, groups;
  int sh, sw, dh, dw, top, left;
  int d, od, kd, sd, dd, front;  // depth: 1 and no padding for images
  int64_t tap_stride, channel_stride, output_stride;
};

// y = relu?(conv(x, w) + bias?). bias may be null.
void direct_forward(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* w,
                    const void* bias, bool relu, void* y);
void direct_input_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* dy, const void* w,
                       void* dx);
// `sums`: parts * taps * c/groups * o floats; unused if parts is 1.
void direct_weight_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* dy,
                        void* dw, float* sums, int64_t parts);

// out[c] = sum over rows of x[row, c]. `sums`: parts * channels floats; unused if parts is 1.
void channel_sum(cudaStream_t stream, DType dtype, const void* x, int64_t rows, int64_t channels, void* out,
                 float* sums, int64_t parts);

// y = relu?(y + bias?), one bias per channel; bias may be null.
void bias_relu(cudaStream_t stream, DType dtype, void* y, int64_t rows, int64_t channels, const void* bias, bool relu);

}  // namespace plimsoll::engine::cuda
