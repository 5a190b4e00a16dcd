// Convolutions over one, two or three spatial dimensions. 'same' becomes explicit, asymmetric padding, as in
// TensorFlow. Bias and activation are separate nodes.
#include <fmt/format.h>

#include <array>

#include "model/channels_first.h"
#include "model/geometry.h"

namespace plimsoll::engine {
namespace {

Geometry read_geometry(Config& c, size_t rank) {
  Geometry g;
  g.kernel = c.sizes("kernel_size", rank, 1);
  g.strides = c.sizes("strides", rank, 1, Sizes(rank, 1));
  g.dilations = c.sizes("dilation_rate", rank, 1, Sizes(rank, 1));
  const std::string padding = rank == 1 ? c.choice("padding", {"valid", "same", "causal"}, "valid")
                                        : c.choice("padding", {"valid", "same"}, "valid");
  g.padding = padding == "same"     ? WindowPadding::kSame
              : padding == "causal" ? WindowPadding::kCausal
                                    : WindowPadding::kValid;
  return g;
}

Attrs attributes(const Geometry& g, const std::vector<KernelWindow>& windows, int64_t groups) {
  return {{"strides", op_sizes(g.strides)},
          {"pads", op_pads(windows)},
          {"dilations", op_sizes(g.dilations)},
          {"groups", groups}};
}

// The bias and activation that follow every convolution.
struct Ending {
  bool use_bias = false;
  WeightConfig bias;
  Activation activation;

  explicit Ending(Config& c)
      : use_bias(c.flag("use_bias", true)),
        bias(read_weight(c, "bias", "zeros")),
        activation(read_activation(c, "activation")) {}

  void add_weight(LayerShape& shape) const {
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{shape.output().back()}));
  }
  // `image` is in the ops' form. The bias is the last weight.
  ValueId build(const BuildCall& call, ValueId image, size_t rank) const {
    ValueId y = as_output(call, image, rank);
    if (use_bias) y = call.add("bias_add", {y, call.weights.back()});
    return activation(call, y);
  }
};

Layer convolution(Config& c, size_t rank) {
  const Geometry g = read_geometry(c, rank);
  const int64_t filters = c.integer("filters", 1, kMostElements);
  const int64_t groups = c.integer("groups", 1, kMostElements, 1);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform");
  const Ending ending(c);
  c.only("lora_rank");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(auto windows, place_windows(g, in[0], where));
    const int64_t channels = in[0].back();
    if (channels % groups != 0 || filters % groups != 0)
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: {} groups must divide {} input channels and {} filters",
                                                       where, groups, channels, filters));
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, filters, where));
    PLIMSOLL_ASSIGN(Shape w, kernel_shape(g, channels / groups, filters, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    ending.add_weight(shape);
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId x = as_image(call, call.in(), rank), w = as_kernel(call, call.weights[0], rank);
    return ending.build(call, call.add(op_name("conv", rank), {x, w}, attributes(g, call.computed.windows, groups)),
                        rank);
  };
  return with_data_format(c, layer);
}

// A depthwise kernel [kh,kw,C,M] becomes a grouped kernel [kh,kw,1,C*M]. In both, the output channel is c*M+m.
ValueId depthwise(const BuildCall& call, const Geometry& g, ValueId kernel) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): a reference would not survive add()
  const Shape k = call.shape(kernel);
  const int64_t channels = k[g.rank()], multiplier = k.back();
  std::vector<int64_t> dims = op_sizes(g.kernel);
  dims.insert(dims.end(), {1, channels * multiplier});
  const ValueId x = as_image(call, call.in(), g.rank());
  const ValueId grouped = call.add("reshape", {kernel}, {{"shape", dims}});
  return call.add(op_name("conv", g.rank()), {x, grouped}, attributes(g, call.computed.windows, channels));
}

Layer depthwise_convolution(Config& c, size_t rank) {
  const Geometry g = read_geometry(c, rank);
  const int64_t multiplier = c.integer("depth_multiplier", 1, kMostGeometry, 1);
  const WeightConfig kernel = read_weight(c, "depthwise", "glorot_uniform");
  const Ending ending(c);
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(auto windows, place_windows(g, in[0], where));
    const int64_t channels = in[0].back();
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, channels * multiplier, where));
    PLIMSOLL_ASSIGN(Shape w, kernel_shape(g, channels, multiplier, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    ending.add_weight(shape);
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) { return ending.build(call, depthwise(call, g, call.weights[0]), rank); };
  return with_data_format(c, layer);
}

Layer separable_convolution(Config& c, size_t rank) {
  const Geometry g = read_geometry(c, rank);
  const Geometry one{Sizes(rank, 1), Sizes(rank, 1), Sizes(rank, 1), WindowPadding::kValid};
  const int64_t filters = c.integer("filters", 1, kMostElements);
  const int64_t multiplier = c.integer("depth_multiplier", 1, kMostGeometry, 1);
  const WeightConfig depth = read_weight(c, "depthwise", "glorot_uniform"),
                     point = read_weight(c, "pointwise", "glorot_uniform");
  const Ending ending(c);
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(auto windows, place_windows(g, in[0], where));
    const int64_t channels = in[0].back(), middle = channels * multiplier;
    PLIMSOLL_TRY(image_shape(windows, middle, where));
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, filters, where));
    PLIMSOLL_ASSIGN(Shape d, kernel_shape(g, channels, multiplier, where + ": depthwise kernel"));
    PLIMSOLL_ASSIGN(Shape p, kernel_shape(one, middle, filters, where + ": pointwise kernel"));
    shape.weights.push_back(depth.spec("depthwise_kernel", std::move(d)));
    shape.weights.push_back(point.spec("pointwise_kernel", std::move(p)));
    ending.add_weight(shape);
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId middle = depthwise(call, g, call.weights[0]), w = as_kernel(call, call.weights[1], rank);
    const std::vector<KernelWindow> unpadded(rank);
    return ending.build(call, call.add(op_name("conv", rank), {middle, w}, attributes(one, unpadded, 1)), rank);
  };
  return with_data_format(c, layer);
}

// Returns TensorFlow's output size of a transposed convolution, and the padding of the convolution whose gradient it
// is.
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
        fmt::format(
            "{}: output_padding {} with a kernel of {} and stride {} gives {}, which an input of {} cannot produce",
            where, output_padding.value_or(0), extent, stride, window.output, in));
  const int64_t total = std::max<int64_t>((in - 1) * stride + extent - window.output, 0);
  window.before = total / 2;
  window.after = total - window.before;
  return window;
}

Layer transposed_convolution(Config& c, size_t rank) {
  const Geometry g = read_geometry(c, rank);
  const int64_t filters = c.integer("filters", 1, kMostElements);
  std::optional<Sizes> output_padding;
  if (c.value("output_padding")) output_padding = c.sizes("output_padding", rank, 0);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform");
  const Ending ending(c);
  const std::string where = c.where();
  for (size_t d = 0; output_padding && d < rank; ++d)
    if ((*output_padding)[d] >= g.strides[d])
      c.issues().reject(fmt::format("{}: output_padding {} must be less than the stride {}", where,
                                    (*output_padding)[d], g.strides[d]));
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank + 1, where));
    std::vector<KernelWindow> windows(rank);
    for (size_t d = 0; d < rank; ++d) {
      const auto extra = output_padding ? std::optional((*output_padding)[d]) : std::nullopt;
      const bool same = g.padding == WindowPadding::kSame;
      PLIMSOLL_ASSIGN(windows[d], place_transposed(in[0][d], g.extent(d), g.strides[d], same, extra, where));
    }
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, filters, where));
    PLIMSOLL_ASSIGN(Shape w, kernel_shape(g, filters, in[0].back(), where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(w)));
    ending.add_weight(shape);
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId x = as_image(call, call.in(), rank), w = as_kernel(call, call.weights[0], rank);
    Attrs attrs = attributes(g, call.computed.windows, 1);
    Sizes size;
    for (const KernelWindow& window : call.computed.windows) size.push_back(window.output);
    attrs.set("input_size", op_sizes(size));
    return ending.build(call, call.add(op_name("conv", rank, "_input_grad"), {x, w}, std::move(attrs)), rank);
  };
  return with_data_format(c, layer);
}

constexpr std::array kLayers = {
    LayerClass{"Conv1D", [](Config& c) { return convolution(c, 1); }},
    LayerClass{"Conv2D", [](Config& c) { return convolution(c, 2); }},
    LayerClass{"Conv3D", [](Config& c) { return convolution(c, 3); }},
    LayerClass{"DepthwiseConv1D", [](Config& c) { return depthwise_convolution(c, 1); }},
    LayerClass{"DepthwiseConv2D", [](Config& c) { return depthwise_convolution(c, 2); }},
    LayerClass{"SeparableConv1D", [](Config& c) { return separable_convolution(c, 1); }},
    LayerClass{"SeparableConv2D", [](Config& c) { return separable_convolution(c, 2); }},
    LayerClass{"Conv1DTranspose", [](Config& c) { return transposed_convolution(c, 1); }},
    LayerClass{"Conv2DTranspose", [](Config& c) { return transposed_convolution(c, 2); }},
    LayerClass{"Conv3DTranspose", [](Config& c) { return transposed_convolution(c, 3); }},
};

}  // namespace

std::span<const LayerClass> convolution_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
