// Our own convolutions on the tensor cores by implicit GEMM: instead of writing im2col rows to memory, a block loads
// the image rows under a segment of output pixels into shared memory and gathers the im2col elements from there. x, y
// and dy are NHWC, weights [o, kh, kw, c], groups = 1. The launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct ImplicitGemmShape {
  int n, h, w, c, oh, ow, o, kh, kw;
  int sh, sw, dh, dw, top, left;
  int numbers;  // elements of an im2col row (k of the GEMM): kh * kw * c
};

// Whether implicit_gemm.cu supports this shape. The card must have compute capability 8.0 or higher.
bool implicit_gemm_takes(const ImplicitGemmShape& shape, Element element, bool weight_grad);

// y = relu?(conv(x, w) + bias?), w [o, kh, kw, c]. bias may be null. float32 is rounded to tf32.
void launch_implicit_gemm_forward(const ImplicitGemmShape& shape, Element element, const void* x, const void* w,
                                  const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream);

// The number of partial weight gradients that fills a card.
int64_t implicit_gemm_parts(const ImplicitGemmShape& shape, int multiprocessors);

// parts[count, o, width]: partial weight gradients, each summed over a share of the output pixels (split-K). If `one`,
// column `numbers` holds the sum of dy (bias gradient). width > numbers if `one`, otherwise width >= numbers.
void launch_implicit_gemm_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                      bool one, int width, int64_t count, float* parts, cudaStream_t stream);

// The same for larger kernels in half precision (implicit_gemm_pairs.cu).
bool paired_takes(const ImplicitGemmShape& shape, Element element, bool weight_grad);
void launch_paired_forward(const ImplicitGemmShape& shape, Element element, const void* x, const void* w,
                           const void* bias, bool relu, void* y, int multiprocessors, cudaStream_t stream);
int64_t paired_parts(const ImplicitGemmShape& shape, int multiprocessors);
void launch_paired_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy, bool one,
                               int width, int64_t count, float* parts, cudaStream_t stream);

// The weight gradient over 16, 32 or 64 input channels, with one warp per kernel tap (weight_grad_per_tap.cu).

// Whether the kernel supports this shape. The card must have compute capability 8.0 or higher.
bool per_tap_takes(const ImplicitGemmShape& shape, Element element);
int64_t per_tap_parts(const ImplicitGemmShape& shape, int multiprocessors);
// parts[count, o, numbers]: partial weight gradients, each summed over a share of the output pixels (split-K).
void launch_per_tap_weight_grad(const ImplicitGemmShape& shape, Element element, const void* x, const void* dy,
                                int64_t count, float* parts, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
