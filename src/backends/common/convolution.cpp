#include "backends/common/convolution.h"

#include <cassert>

namespace plimsoll::engine {
namespace {

int64_t result_size(int64_t input, int64_t pads, int64_t kernel, int64_t dilation, int64_t stride) {
  return (input + pads - (kernel - 1) * dilation - 1) / stride + 1;
}

}  // namespace

Convolution::Convolution(const NodeView& view) {
  const std::string& op = view.node.op;
  pass = op.ends_with("weight_grad")  ? ConvolutionPass::kWeightGrad
         : op.ends_with("input_grad") ? ConvolutionPass::kInputGrad
                                      : ConvolutionPass::kForward;
  const bool forward = pass == ConvolutionPass::kForward;
  image = pass == ConvolutionPass::kInputGrad ? &view.out(0) : &view.in(0);
  weights = pass == ConvolutionPass::kWeightGrad ? &view.out(0) : &view.in(1);
  result = forward ? &view.out(0) : pass == ConvolutionPass::kInputGrad ? &view.in(0) : &view.in(1);
  const Shape &x = image->type.shape, &shape = weights->type.shape;
  const auto &strides = view.attrs().list("strides"), &pads = view.attrs().list("pads"),
             &dilations = view.attrs().list("dilations");
  const size_t rank = strides.size();
  assert(rank == 2 || rank == 3);
  // Sizes of the last two dimensions; depth 1 unless there are three.
  n = x[0], d = 1, h = x[rank - 1], w = x[rank], c = x.back();
  kd = 1, kh = shape[rank - 2], kw = shape[rank - 1], o = shape.back();
  groups = view.attrs().integer("groups");
  sd = 1, sh = strides[rank - 2], sw = strides[rank - 1];
  dd = 1, dh = dilations[rank - 2], dw = dilations[rank - 1];
  front = 0, back = 0;
  top = pads[2 * rank - 4], bottom = pads[2 * rank - 3], left = pads[2 * rank - 2], right = pads[2 * rank - 1];
  if (rank == 3) {
    d = x[1], kd = shape[0], sd = strides[0], dd = dilations[0];
    front = pads[0], back = pads[1];
    flatten();
  }
  od = result_size(d, front + back, kd, dd, sd);
  oh = result_size(h, top + bottom, kh, dh, sh);
  ow = result_size(w, left + right, kw, dw, sw);
  dtype = view.in_dtype(0);
  bias = forward ? view.inputs() == 3 : view.outputs() == 2;
  relu = forward && view.attrs().has("activation");
}

void Convolution::flatten() {
  const bool along_depth = kh == 1 && kw == 1 && sh == 1 && sw == 1 && top + bottom + left + right == 0;
  if (kd == 1 && sd == 1 && front == 0 && back == 0) {
    n *= d;
    d = 1;
  } else if (along_depth) {
    w *= h;
    h = d, kh = kd, sh = sd, dh = dd, top = front, bottom = back;
    dw = 1;
    d = kd = sd = dd = 1;
    front = back = 0;
  }
}

}  // namespace plimsoll::engine
