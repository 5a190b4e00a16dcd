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

// The number of parts into which a sum over `rows` is split; each part stores `columns` float32 sums in the workspace.
// A single part needs no workspace.
int64_t sum_parts(int64_t rows, int64_t columns);
// The largest number of parts that fits into `bytes` of workspace.
int64_t sum_parts_within(int64_t rows, int64_t columns, Bytes bytes);

}  // namespace plimsoll::engine::cuda
