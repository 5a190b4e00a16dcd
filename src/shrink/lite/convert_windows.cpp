// Convolutions, pooling, padding and resizing. TensorFlow Lite has the kernels of a convolution as [O,kh,kw,I], of a
// depthwise one as [1,kh,kw,C*M], and knows only the paddings "same" and "valid".
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

std::array<int32_t, 2> pair(const Attrs& attrs, const char* name) {
  const std::vector<int64_t>& list = attrs.list(name);
  return {static_cast<int32_t>(list[0]), static_cast<int32_t>(list[1])};
}

// Returns whether `pads` are those that "same" would give.
bool is_same(const Shape& in, const Shape& out, const std::array<int32_t, 2>& kernel,
             const std::array<int32_t, 2>& stride, const std::array<int32_t, 2>& dilation,
             const std::vector<int64_t>& pads) {
  for (size_t d = 0; d < 2; ++d) {
    if (out[d + 1] != (in[d + 1] + stride[d] - 1) / stride[d]) return false;
    const int64_t extent = int64_t{kernel[d] - 1} * dilation[d] + 1;
    const int64_t total = std::max<int64_t>((out[d + 1] - 1) * stride[d] + extent - in[d + 1], 0);
    if (pads[2 * d] != total / 2 || pads[2 * d + 1] != total - total / 2) return false;
  }
  return true;
}

bool none(const std::vector<int64_t>& pads) {
  return std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; });
}

// Pads height and width with zeros.
int32_t padded(Converter& c, int32_t x, const std::vector<int64_t>& pads) {
  if (none(pads)) return x;
  std::vector<int32_t> list(8), shape = c.shape_of(x);
  for (size_t i = 0; i < 4; ++i) {
    list[i + 2] = static_cast<int32_t>(pads[i]);
    shape[1 + i / 2] += static_cast<int32_t>(pads[i]);
  }
  const int32_t sizes = c.add_integers(list, "pads");
  auto& tensor = c.lite().tensor(sizes);
  tensor.shape = {4, 2};
  return c.add(Op::kPad, {x, sizes}, shape);
}

void convolution(Converter& c, const Node& node) {
  const ValueId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
  if (!c.is_constant(w)) return c.refuse("a convolution whose kernel is computed");
  const Shape in = c.shape(x), out = c.shape(y), k = c.shape(w);
  const int64_t groups = node.attrs.integer("groups"), channels = in[3], filters = out[3];
  const bool depthwise = groups > 1 && groups == channels;
  Options options;
  options.stride = pair(node.attrs, "strides");
  options.dilation = pair(node.attrs, "dilations");
  const std::array<int32_t, 2> kernel{static_cast<int32_t>(k[0]), static_cast<int32_t>(k[1])};
  const std::vector<int64_t>& pads = node.attrs.list("pads");
  int32_t input = c.tensor(x);
  if (is_same(in, out, kernel, options.stride, options.dilation, pads))
    options.padding = Padding::kSame;
  else
    input = padded(c, input, pads);
  const std::vector<float> from = c.floats(w);
  const int32_t bias =
      node.inputs.size() > 2
          ? c.add_constant({static_cast<int32_t>(filters)}, c.floats(node.inputs[2]), "bias")
          : c.add_constant({static_cast<int32_t>(filters)}, std::vector<float>(static_cast<size_t>(filters)), "bias");
  std::vector<float> to(from.size());
  std::vector<int32_t> shape;
  if (depthwise) {
    options.multiplier = static_cast<int32_t>(filters / channels);
    to = from;  // [kh,kw,1,C*M]
    shape = {1, kernel[0], kernel[1], static_cast<int32_t>(filters)};
  } else {
    const auto inner = static_cast<size_t>(k[0] * k[1] * k[2]), outer = static_cast<size_t>(filters);
    for (size_t i = 0; i < inner; ++i)
      for (size_t o = 0; o < outer; ++o) to[o * inner + i] = from[i * outer + o];
    shape = {static_cast<int32_t>(filters), kernel[0], kernel[1], static_cast<int32_t>(k[2])};
  }
  const int32_t weights = c.add_constant(shape, std::move(to), "kernel");
  c.set(y, c.add(depthwise ? Op::kDepthwiseConv : Op::kConv, {input, weights, bias}, dims_of(out), options));
}

// The gradient of a convolution with respect to its input is a transposed convolution.
void transposed(Converter& c, const Node& node) {
  const ValueId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
  if (!c.is_constant(w)) return c.refuse("a convolution whose kernel is computed");
  const Shape small = c.shape(x), large = c.shape(y), k = c.shape(w);
  Options options;
  options.stride = pair(node.attrs, "strides");
  const std::array<int32_t, 2> kernel{static_cast<int32_t>(k[0]), static_cast<int32_t>(k[1])};
  const std::vector<int64_t>& pads = node.attrs.list("pads");
  if (node.attrs.integer("groups") != 1 || pair(node.attrs, "dilations") != std::array<int32_t, 2>{1, 1})
    return c.refuse("a transposed convolution with groups or dilation");
  if (is_same(large, small, kernel, options.stride, {1, 1}, pads))
    options.padding = Padding::kSame;
  else if (!none(pads))
    return c.refuse("a transposed convolution with output_padding");
  const auto taps = static_cast<size_t>(k[0] * k[1]), inner = static_cast<size_t>(k[3]),
             outer = static_cast<size_t>(k[2]);
  const std::vector<float> from = c.floats(w);  // [kh,kw,out,in] -> [out,kh,kw,in]
  std::vector<float> to(from.size());
  for (size_t t = 0; t < taps; ++t)
    for (size_t o = 0; o < outer; ++o)
      for (size_t i = 0; i < inner; ++i) to[(o * taps + t) * inner + i] = from[(t * outer + o) * inner + i];
  const int32_t weights = c.add_constant({static_cast<int32_t>(k[2]), kernel[0], kernel[1], static_cast<int32_t>(k[3])},
                                         std::move(to), "kernel");
  const int32_t size = c.add_integers(dims_of(large), "size");
  c.set(y, c.add(Op::kTransposeConv, {size, weights, c.tensor(x)}, dims_of(large), options));
}

void pooling(Converter& c, const Node& node) {
  const ValueId x = node.inputs[0], y = node.outputs[0];
  const bool max = node.op == "max_pool2d";
  Options options;
  options.filter = pair(node.attrs, "pool");
  options.stride = pair(node.attrs, "strides");
  const std::vector<int64_t>& pads = node.attrs.list("pads");
  if (is_same(c.shape(x), c.shape(y), options.filter, options.stride, {1, 1}, pads))
    options.padding = Padding::kSame;
  else if (!none(pads))
    return c.refuse("pooling with another padding than same and valid");
  c.set(y, c.add(max ? Op::kMaxPool : Op::kAveragePool, {c.tensor(x)}, dims_of(c.shape(y)), options));
}

void global_pooling(Converter& c, const Node& node) {
  const int32_t axes = c.add_integers({1, 2}, "axes");
  c.set(node.outputs[0], c.add(node.op == "global_avg_pool2d" ? Op::kMean : Op::kReduceMax,
                               {c.tensor(node.inputs[0]), axes}, dims_of(c.shape(node.outputs[0]))));
}

void upsample(Converter& c, const Node& node) {
  const Shape& out = c.shape(node.outputs[0]);
  Options options;
  const bool nearest = node.attrs.text("interpolation") == "nearest";
  options.half_pixel_centers = true;
  const int32_t size = c.add_integers({static_cast<int32_t>(out[1]), static_cast<int32_t>(out[2])}, "size");
  c.set(node.outputs[0], c.add(nearest ? Op::kResizeNearest : Op::kResizeBilinear, {c.tensor(node.inputs[0]), size},
                               dims_of(out), options));
}

void pad2d(Converter& c, const Node& node) {
  c.set(node.outputs[0], padded(c, c.tensor(node.inputs[0]), node.attrs.list("pads")));
}

void pad(Converter& c, const Node& node) {
  if (node.attrs.text("mode") != "constant" || node.attrs.real_or("value", 0) != 0)
    return c.refuse("padding with something else than zeros");
  const std::vector<int64_t>& pads = node.attrs.list("pads");
  const int32_t sizes = c.add_integers({pads.begin(), pads.end()}, "pads");
  c.lite().tensor(sizes).shape = {static_cast<int32_t>(pads.size() / 2), 2};
  c.set(node.outputs[0], c.add(Op::kPad, {c.tensor(node.inputs[0]), sizes}, dims_of(c.shape(node.outputs[0]))));
}

constexpr std::array kConversions = {
    NodeConversion{"conv2d", convolution},
    NodeConversion{"conv2d_input_grad", transposed},
    NodeConversion{"max_pool2d", pooling},
    NodeConversion{"avg_pool2d", pooling},
    NodeConversion{"global_avg_pool2d", global_pooling},
    NodeConversion{"global_max_pool2d", global_pooling},
    NodeConversion{"upsample2d", upsample},
    NodeConversion{"pad2d", pad2d},
    NodeConversion{"pad", pad},
};

}  // namespace

std::span<const NodeConversion> window_conversions() {
  return kConversions;
}

}  // namespace plimsoll::engine::lite
