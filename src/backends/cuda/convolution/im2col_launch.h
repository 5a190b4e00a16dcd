// Own kernels of convolutions by im2col (im2col.h). Launches report through cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct Im2colShape {
  int images, h, w, c, oh, ow, kw;
  int sh, sw, dh, dw, top, left;
  int numbers, width;
  bool one;  // a 1 behind the numbers
};

// rows[image, oh, ow, width]: the numbers under the kernel, ordered (tap, channel), then zeros.
void launch_im2col(const Im2colShape& shape, Element element, const void* x, void* rows, cudaStream_t stream);

// to[rows, width]: from[rows, numbers], then last[rows], which may be null, then zeros.
void launch_fill_up(int64_t rows, int64_t numbers, int64_t width, Element element, const void* from, const void* last,
                    void* to, cudaStream_t stream);

// dw[outputs, numbers] = the sum of parts[count, outputs, width]; db[outputs], which may be null, the column behind.
void launch_sum_parts(int64_t count, int64_t outputs, int64_t numbers, int64_t width, const float* parts,
                      Element element, void* dw, void* db, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
