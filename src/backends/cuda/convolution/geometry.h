// The scratch a convolution's kernels are granted, shared by offers and binders: what is granted is what the kernels
// divide.
#pragma once

#include "backends/common/convolution.h"
#include "backends/cuda/kernels.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kCudnnKernel = "cudnn";    // weights in kWeightLayout
inline constexpr const char* kDirectKernel = "direct";  // own loops, weights row-major: depthwise, uneven padding

// Whether own kernels on the matrix units may compute this: the card has what they are written for, and float32 may be
// rounded.
inline bool on_matrix_units(const Card& card, const Convolution& c) {
  constexpr int kCapability = 80;
  return card.capability >= kCapability && (c.dtype != DType::kFloat32 || card.has_tf32());
}

// Into how many parts of the rows a sum over them is cut; each part keeps its sums as float32 in the workspace. One
// part needs no workspace. `columns` sums are taken at once.
int64_t sum_parts(int64_t rows, int64_t columns);
// The most parts that `bytes` of workspace hold.
int64_t sum_parts_within(int64_t rows, int64_t columns, Bytes bytes);

}  // namespace plimsoll::engine::cuda
