#include "backends/common/convolution.h"

namespace plimsoll::engine {

Convolution::Convolution(const NodeView& view) {
  const std::string& op = view.node.op;
  const bool forward = op == "conv2d" || op == "conv2d_pooled", weight_grad = op.ends_with("weight_grad");
  image = op == "conv2d_input_grad" ? &view.out(0) : &view.in(0);
  weights = weight_grad ? &view.out(0) : &view.in(1);
  const Shape &x = image->type.shape, &shape = weights->type.shape;
  const auto &strides = view.attrs().list("strides"), &pads = view.attrs().list("pads"),
             &dilations = view.attrs().list("dilations");
  n = x[0], h = x[1], w = x[2], c = x[3];
  kh = shape[0], kw = shape[1], o = shape[3];
  groups = view.attrs().integer("groups");
  sh = strides[0], sw = strides[1];
  dh = dilations[0], dw = dilations[1];
  top = pads[0], bottom = pads[1], left = pads[2], right = pads[3];
  oh = (h + top + bottom - (kh - 1) * dh - 1) / sh + 1;
  ow = (w + left + right - (kw - 1) * dw - 1) / sw + 1;
  dtype = view.in_dtype(0);
  bias = forward ? view.inputs() == 3 : view.outputs() == 2;
  relu = forward && view.attrs().has("activation");
}

}  // namespace plimsoll::engine
