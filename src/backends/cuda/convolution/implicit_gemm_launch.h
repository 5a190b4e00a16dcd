// Implicit GEMM: own kernels of convolutions over few channels on the matrix units, from the image as it is. A block
// keeps the lines under a stretch of output pixels in shared memory, and what im2col would write out is gathered from
// there. Launches report through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct ImplicitGemmShape {
  int n, h, w, c, oh, ow, o, kh, kw;
  int sh, sw, dh, dw, top, left;
  int numbers;  // under the kernel: kh * kw * c
};

// Whether the kernels take this shape; the card must have the matrix units of compute capability 8.0.
bool implicit_gemm_takes(const ImplicitGemmShape& shape, Element element, bool weight_grad);

// y = relu?(conv(x, w) + bias?), w [o, kh, kw, c]. bias may be null. float32 is rounded to tf32.
void launch_implicit_gemm_forward(const ImplicitGemmShape& shape, Element element, const void* x, const void* w,
                                  const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream);

// How many parts of a weight gradient fill a card.
int64_t implicit_gemm_parts(const ImplicitGemmShape& shape, int multiprocessors);

// parts[count, o, width]: sums of dy * x over a share of the pixels each, and behind the numbers the sum of dy if
// `one`; width > numbers, or equal to them without.
void launch_implicit_gemm_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                      bool one, int width, int64_t count, float* parts, cudaStream_t stream);

// The same for larger kernels in half precision, two numbers at a time.
bool paired_takes(const ImplicitGemmShape& shape, Element element, bool weight_grad);
void launch_paired_forward(const ImplicitGemmShape& shape, Element element, const void* x, const void* w,
                           const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream);
int64_t paired_parts(const ImplicitGemmShape& shape, int multiprocessors);
void launch_paired_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy, bool one,
                               int width, int64_t count, float* parts, cudaStream_t stream);

// The weight gradient over 16, 32 or 64 channels: a warp for each tap of the kernel.

// Whether the kernel takes this shape; the card as above.
bool per_tap_takes(const ImplicitGemmShape& shape, Element element);
int64_t per_tap_parts(const ImplicitGemmShape& shape, int multiprocessors);
// parts[count, o, numbers]: sums of dy * x over a share of the pixels each.
void launch_per_tap_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                int64_t count, float* parts, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
