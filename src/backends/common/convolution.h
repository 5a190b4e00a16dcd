// The geometry of a convolution node: conv2d, conv3d, their gradients, and the conv2d_pooled variants (with a max
// pooling after the convolution). All backends read a node's sizes from this struct and derive their kernel parameters
// from it.
//
// An image [N,H,W,C] has depth 1. A three-dimensional convolution that mixes no planes, or only pixels at the same
// place of neighbouring planes, is described as the two-dimensional convolution that it is: of N*D images [H,W], or of
// images [D, H*W]. So the kernels for images run it too, and only `is_volume()` needs kernels for three dimensions.
#pragma once

#include "backends/common/node_view.h"

namespace plimsoll::engine {

enum class ConvolutionPass : uint8_t { kForward, kInputGrad, kWeightGrad };

struct Convolution {
  const Value *image, *weights;  // x (or dx), w (or dw)
  const Value* result;           // y (or dy), pooled for the conv2d_pooled variants
  ConvolutionPass pass;
  int64_t n, d, h, w, c;  // size of the image
  int64_t od, oh, ow, o;  // size of the result before pooling
  int64_t kd, kh, kw, groups;
  int64_t sd, sh, sw;  // strides
  int64_t dd, dh, dw;  // dilations
  int64_t front, back, top, bottom, left, right;
  DType dtype;
  bool bias;  // the forward pass adds a bias, or the weight gradient also sums the bias gradient
  bool relu;

  explicit Convolution(const NodeView& view);

  bool is_volume() const { return d > 1 || kd > 1 || front > 0 || back > 0; }
  int64_t taps() const { return kd * kh * kw; }
  int64_t group_channels() const { return c / groups; }
  int64_t input_pixels() const { return n * d * h * w; }
  int64_t output_pixels() const { return n * od * oh * ow; }
  int64_t weight_elements() const { return taps() * group_channels() * o; }
  bool depthwise() const { return group_channels() == 1 && groups > 1; }
  bool padded_evenly() const { return front == back && top == bottom && left == right; }
  double flops() const {
    return 2.0 * static_cast<double>(output_pixels()) * static_cast<double>(o) *
           static_cast<double>(taps() * group_channels());
  }

 private:
  void flatten();
};

}  // namespace plimsoll::engine
