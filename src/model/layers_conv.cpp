// Convolutions. 'same' becomes explicit, asymmetric padding, as TensorFlow places it; bias and activation are nodes of
// their own.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll {
namespace {

struct Geometry {
  Config::Pair kernel, strides, dilations;
  bool same = false;

  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

Geometry read_geometry(Config& c) {
  Geometry g;
  g.kernel = c.pair("kernel_size", 1);
  g.strides = c.pair("strides", 1, Config::Pair{1, 1});
  g.dilations = c.pair("dilation_rate", 1, Config::Pair{1, 1});
  g.same = c.choice("padding", {"valid", "same"}, "valid") == "same";
  c.choice("data_format", {"channels_last"}, "channels_last");
  c.only("activity_regularizer");
  return g;
}

Result<std::array<KernelWindow, 2>> place(const Geometry& g, const Shape& in, const std::string& where) {
  PLIMSOLL_TRY(need_rank(in, 3, where));
  std::array<KernelWindow, 2> windows;
  for (size_t d = 0; d < 2; ++d) {
    PLIMSOLL_ASSIGN(windows[d], place_window(in[d], g.extent(d), g.strides[d], g.same, where));
  }
  return windows;
}

Attrs attributes(const Geometry& g, const std::array<KernelWindow, 2>& w, int64_t groups) {
  return {{"strides", std::vector<int64_t>{g.strides[0], g.strides[1]}},
          {"pads", std::vector<int64_t>{w[0].before, w[0].after, w[1].before, w[1].after}},
          {"dilations", std::vector<int64_t>{g.dilations[0], g.dilations[1]}},
          {"groups", groups}};
}

Shape sample_of(const BuildCall& call, ValueId x) {
  const Shape& shape = call.shape(x);
  return Shape(std::vector<int64_t>(shape.dims.begin() + 1, shape.dims.end()));
}

ValueId convolve(const BuildCall& call, const Geometry& g, ValueId x, ValueId kernel, int64_t groups,
                 const std::string& where) {
  const auto windows = place(g, sample_of(call, x), where);
  assert(windows);
  return call.add("conv2d", {x, kernel}, attributes(g, *windows, groups));
}

Layer conv2d(Config& c) {
  const Geometry g = read_geometry(c);
  const int64_t filters = c.integer("filters", 1, kMostElements);
  const int64_t groups = c.integer("groups", 1, kMostElements, 1);
  const bool use_bias = c.flag("use_bias", true);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform"), bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  c.only("lora_rank");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto windows, place(g, in[0], where));
    const int64_t channels = in[0][2];
    if (channels % groups != 0 || filters % groups != 0)
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: {} groups must divide {} input channels and {} filters",
                                                       where, groups, channels, filters));
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.output, checked_shape({windows[0].output, windows[1].output, filters}, where));
    PLIMSOLL_ASSIGN(Shape w, checked_shape({g.kernel[0], g.kernel[1], channels / groups, filters}, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{filters}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    ValueId y = convolve(call, g, call.in(), call.weights[0], groups, where);
    if (use_bias) y = call.add("bias_add", {y, call.weights[1]});
    return activation(call, y);
  };
  return layer;
}

// A depthwise kernel [kh,kw,C,M] is a grouped one [kh,kw,1,C*M]: output channel c*M+m, in both.
ValueId depthwise(const BuildCall& call, const Geometry& g, ValueId kernel, const std::string& where) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): a reference would not survive add()
  const Shape k = call.shape(kernel);
  const ValueId grouped = call.add("reshape", {kernel}, {{"shape", std::vector<int64_t>{k[0], k[1], 1, k[2] * k[3]}}});
  return convolve(call, g, call.in(), grouped, k[2], where);
}

Layer depthwise_conv2d(Config& c) {
  const Geometry g = read_geometry(c);
  const int64_t multiplier = c.integer("depth_multiplier", 1, kMostGeometry, 1);
  const bool use_bias = c.flag("use_bias", true);
  const WeightConfig kernel = read_weight(c, "depthwise", "glorot_uniform"), bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto windows, place(g, in[0], where));
    const int64_t channels = in[0][2];
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.output, checked_shape({windows[0].output, windows[1].output, channels * multiplier}, where));
    PLIMSOLL_ASSIGN(Shape w, checked_shape({g.kernel[0], g.kernel[1], channels, multiplier}, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{channels * multiplier}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    ValueId y = depthwise(call, g, call.weights[0], where);
    if (use_bias) y = call.add("bias_add", {y, call.weights[1]});
    return activation(call, y);
  };
  return layer;
}

Layer separable_conv2d(Config& c) {
  const Geometry g = read_geometry(c);
  const int64_t filters = c.integer("filters", 1, kMostElements);
  const int64_t multiplier = c.integer("depth_multiplier", 1, kMostGeometry, 1);
  const bool use_bias = c.flag("use_bias", true);
  const WeightConfig depth = read_weight(c, "depthwise", "glorot_uniform"),
                     point = read_weight(c, "pointwise", "glorot_uniform");
  const WeightConfig bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto windows, place(g, in[0], where));
    const int64_t channels = in[0][2], middle = channels * multiplier;
    LayerShape shape;
    PLIMSOLL_TRY(checked_shape({windows[0].output, windows[1].output, middle}, where));
    PLIMSOLL_ASSIGN(shape.output, checked_shape({windows[0].output, windows[1].output, filters}, where));
    PLIMSOLL_ASSIGN(Shape d,
                    checked_shape({g.kernel[0], g.kernel[1], channels, multiplier}, where + ": depthwise kernel"));
    PLIMSOLL_ASSIGN(Shape p, checked_shape({1, 1, middle, filters}, where + ": pointwise kernel"));
    shape.weights.push_back(depth.spec("depthwise_kernel", std::move(d)));
    shape.weights.push_back(point.spec("pointwise_kernel", std::move(p)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{filters}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const Geometry one{{1, 1}, {1, 1}, {1, 1}, false};
    ValueId y = depthwise(call, g, call.weights[0], where);
    y = convolve(call, one, y, call.weights[1], 1, where);
    if (use_bias) y = call.add("bias_add", {y, call.weights[2]});
    return activation(call, y);
  };
  return layer;
}

// The size TensorFlow gives to a transposed convolution, and the padding of the convolution it is the gradient of.
Result<KernelWindow> place_transposed(int64_t in, int64_t extent, int64_t stride, bool same,
                                      std::optional<int64_t> output_padding, const std::string& where) {
  KernelWindow window;
  if (!same) {
    window.output = (in - 1) * stride + extent + output_padding.value_or(std::max(extent, stride) - extent);
    return window;
  }
  window.output = output_padding ? (in - 1) * stride + extent % 2 + *output_padding : in * stride;
  if (window.output < 1 || (window.output - 1) / stride + 1 != in)
    return fail(
        ErrorCode::kBadGeometry,
        fmt::format("{}: output_padding {} with a kernel of {} and stride {} gives {}, which no input of {} leads to",
                    where, output_padding.value_or(0), extent, stride, window.output, in));
  const int64_t total = std::max<int64_t>((in - 1) * stride + extent - window.output, 0);
  window.before = total / 2;
  window.after = total - window.before;
  return window;
}

Layer conv2d_transpose(Config& c) {
  const Geometry g = read_geometry(c);
  const int64_t filters = c.integer("filters", 1, kMostElements);
  const bool use_bias = c.flag("use_bias", true);
  std::optional<Config::Pair> output_padding;
  if (c.value("output_padding")) output_padding = c.pair("output_padding", 0);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform"), bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  const std::string where = c.where();
  for (size_t d = 0; output_padding && d < 2; ++d)
    if ((*output_padding)[d] >= g.strides[d])
      c.issues().reject(fmt::format("{}: output_padding {} must be less than the stride {}", where,
                                    (*output_padding)[d], g.strides[d]));
  const auto place_both = [=](const Shape& in) -> Result<std::array<KernelWindow, 2>> {
    PLIMSOLL_TRY(need_rank(in, 3, where));
    std::array<KernelWindow, 2> windows;
    for (size_t d = 0; d < 2; ++d) {
      const auto extra = output_padding ? std::optional((*output_padding)[d]) : std::nullopt;
      PLIMSOLL_ASSIGN(windows[d], place_transposed(in[d], g.extent(d), g.strides[d], g.same, extra, where));
    }
    return windows;
  };
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto windows, place_both(in[0]));
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.output, checked_shape({windows[0].output, windows[1].output, filters}, where));
    PLIMSOLL_ASSIGN(Shape w, checked_shape({g.kernel[0], g.kernel[1], filters, in[0][2]}, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{filters}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const auto windows = place_both(sample_of(call, call.in()));
    assert(windows);
    Attrs attrs = attributes(g, *windows, 1);
    attrs.set("input_size", std::vector<int64_t>{(*windows)[0].output, (*windows)[1].output});
    ValueId y = call.add("conv2d_input_grad", {call.in(), call.weights[0]}, std::move(attrs));
    if (use_bias) y = call.add("bias_add", {y, call.weights[1]});
    return activation(call, y);
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Conv2D", conv2d},
    LayerClass{"DepthwiseConv2D", depthwise_conv2d},
    LayerClass{"SeparableConv2D", separable_conv2d},
    LayerClass{"Conv2DTranspose", conv2d_transpose},
};

}  // namespace

std::span<const LayerClass> convolution_layers() {
  return kLayers;
}

}  // namespace plimsoll
