// One convolution's sizes, whichever of its three tensors a node computes, and the scratch its kernels are granted.
// Shared by the rule and the runtime: what the rule grants is what the kernels divide.
#pragma once

#include "backends/cuda/kernels.h"

namespace plimsoll::cuda {

inline constexpr const char* kCudnnKernel = "cudnn";    // weights in kWeightLayout
inline constexpr const char* kDirectKernel = "direct";  // own loops, weights row-major: depthwise, uneven padding

struct Convolution {
  int64_t n, h, w, c;  // x
  int64_t oh, ow, o;   // y
  int64_t kh, kw, groups;
  int64_t sh, sw, dh, dw, top, bottom, left, right;
  DType dtype;
  bool bias;  // read by the forward pass, or summed by the weight gradient
  bool relu;

  explicit Convolution(const NodeView& node);

  int64_t taps() const { return kh * kw; }
  int64_t group_channels() const { return c / groups; }
  int64_t output_pixels() const { return n * oh * ow; }
  int64_t weights() const { return taps() * group_channels() * o; }
  bool depthwise() const { return group_channels() == 1 && groups > 1; }
  bool padded_evenly() const { return top == bottom && left == right; }
};

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

}  // namespace plimsoll::cuda
