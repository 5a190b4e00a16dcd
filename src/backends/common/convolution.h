// The geometry of a convolution node: conv2d, conv2d_input_grad, conv2d_weight_grad and the conv2d_pooled variants
// (with a max pooling after the convolution). All backends read a node's sizes from this struct and derive their kernel
// parameters from it.
#pragma once

#include "backends/common/node_view.h"

namespace plimsoll::engine {

struct Convolution {
  const Value *image, *weights;  // x (or dx), w (or dw)
  int64_t n, h, w, c;            // size of the image
  int64_t oh, ow, o;             // size of the result before pooling
  int64_t kh, kw, groups;
  int64_t sh, sw, dh, dw, top, bottom, left, right;
  DType dtype;
  bool bias;  // the forward pass adds a bias, or the weight gradient also sums the bias gradient
  bool relu;

  explicit Convolution(const NodeView& view);

  int64_t taps() const { return kh * kw; }
  int64_t group_channels() const { return c / groups; }
  int64_t output_pixels() const { return n * oh * ow; }
  int64_t weight_elements() const { return taps() * group_channels() * o; }
  bool depthwise() const { return group_channels() == 1 && groups > 1; }
  bool padded_evenly() const { return top == bottom && left == right; }
  double flops() const {
    return 2.0 * static_cast<double>(output_pixels()) * static_cast<double>(o) *
           static_cast<double>(taps() * group_channels());
  }
};

}  // namespace plimsoll::engine
