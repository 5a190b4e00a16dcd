// Kernel names of convolutions, and the split of their sums over pixels. Offers size the workspace with it and binders
// divide the workspace with it, so both must agree.
#pragma once

#include "backends/common/convolution.h"
#include "backends/cuda/kernels.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kCudnnKernel = "cudnn";  // weights in kWeightLayout
// Direct convolution, weights row-major: depthwise or asymmetric padding.
inline constexpr const char* kDirectKernel = "direct";

// Whether our tensor-core kernels can be used: the card has compute capability 8.0, and float32 may be rounded to tf32.
inline bool on_matrix_units(const Card& card, const Convolution& c) {
  constexpr int kCapability = 80;
  return card.capability >= kCapability && (c.dtype != DType::kFloat32 || card.has_tf32());
}

// Whether the kernels of depthwise.cu take the shape. Other depthwise convolutions run one thread per element.
inline bool has_depthwise_kernel(const Convolution& c) {
  const bool each_channel = c.d == 1 && c.kd == 1 && c.groups == c.c && c.o == c.c;
  const bool square = c.kh == c.kw && c.sh == c.sw && c.dh == 1 && c.dw == 1;
  const bool known = (c.kh == 3 || c.kh == 5 || c.kh == 7) && (c.sh == 1 || c.sh == 2);
  // Tiles of at least 4 pixels are counted with 31 bits, and a row of an image is indexed with them.
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t rows = (c.h + c.top + 1) / 2, columns = (c.w + c.left + 1) / 2;
  return each_channel && square && known && c.n * rows * columns * c.c <= kMost && 2 * columns * c.c <= kMost;
}

// The number of parts into which a sum over `rows` is split; each part stores `columns` float32 sums in the workspace.
// A single part needs no workspace.
int64_t sum_parts(int64_t rows, int64_t columns);
// The largest number of parts that fits into `bytes` of workspace.
int64_t sum_parts_within(int64_t rows, int64_t columns, Bytes bytes);

}  // namespace plimsoll::engine::cuda
