// Kernels of convolutions by im2col + GEMM (im2col.h). The launch functions report errors through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct Im2colShape {
  int images, h, w, c, oh, ow, kw;
  int sh, sw, dh, dw, top, left;
  int numbers, width;
  bool one;  // write a 1 after the elements
};

// rows[image, oh, ow, width]: the elements under the kernel, ordered (tap, channel), then the 1 if `one`, then zeros.
void launch_im2col(const Im2colShape& shape, Element element, const void* x, void* rows, cudaStream_t stream);

// Pads rows: to[rows, width] = from[rows, numbers], then last[rows] (may be null), then zeros.
void launch_fill_up(int64_t rows, int64_t numbers, int64_t width, Element element, const void* from, const void* last,
                    void* to, cudaStream_t stream);

// dw[outputs, numbers] = the sum of parts[count, outputs, width]. db[outputs], which may be null, is the sum of column
// `numbers`.
void launch_sum_parts(int64_t count, int64_t outputs, int64_t numbers, int64_t width, const float* parts,
                      Element element, void* dw, void* db, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
