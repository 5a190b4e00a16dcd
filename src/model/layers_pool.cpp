// Pooling, over windows and over whole images, of one or two spatial dimensions.
#include <fmt/format.h>

#include <array>

#include "model/geometry.h"

namespace plimsoll::engine {
namespace {

Layer pooling(Config& c, size_t rank, const std::string& op) {
  Geometry g;
  g.kernel = c.sizes("pool_size", rank, 1, Sizes(rank, 2));
  g.strides = c.sizes("strides", rank, 1, g.kernel);
  g.dilations = Sizes(rank, 1);
  if (c.choice("padding", {"valid", "same"}, "valid") == "same") g.padding = WindowPadding::kSame;
  c.choice("data_format", {"channels_last"}, "channels_last");
  const std::string where = c.where();
  // The position of a maximum is stored in one byte.
  constexpr int64_t kLargestMaxWindow = 255;
  int64_t elements = 1;
  for (int64_t size : g.kernel) elements *= size;
  if (op == "max_pool2d" && elements > kLargestMaxWindow)
    c.issues().unknown(fmt::format("{}: pool_size={}, which has more than {} elements", where, fmt::join(g.kernel, "x"),
                                   kLargestMaxWindow));
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(auto windows, place_windows(g, in[0], where));
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, in[0].back(), where));
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId y = call.add(
        op, {as_image(call, call.in(), rank)},
        {{"pool", op_sizes(g.kernel)}, {"strides", op_sizes(g.strides)}, {"pads", op_pads(call.computed.windows)}});
    return as_output(call, y, rank);
  };
  return layer;
}

Layer global_pooling(Config& c, size_t rank, const std::string& op) {
  const bool keep = c.flag("keepdims", false);
  c.choice("data_format", {"channels_last"}, "channels_last");
  const std::string where = c.where();
  Layer layer;
  // Keras averages only the unmasked rows.
  if (rank == 1 && op == "global_avg_pool2d") layer.masking = Masking::kChanges;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank + 1, where));
    std::vector<int64_t> dims(keep ? rank : 0, 1);
    dims.push_back(in[0].back());
    return LayerShape(Shape(std::move(dims)));
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId y = call.add(op, {as_image(call, call.in(), rank)});
    return keep ? call.add("reshape", {y}, {{"shape", call.output_dims()}}) : y;
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"MaxPooling1D", [](Config& c) { return pooling(c, 1, "max_pool2d"); }},
    LayerClass{"MaxPooling2D", [](Config& c) { return pooling(c, 2, "max_pool2d"); }},
    LayerClass{"AveragePooling1D", [](Config& c) { return pooling(c, 1, "avg_pool2d"); }},
    LayerClass{"AveragePooling2D", [](Config& c) { return pooling(c, 2, "avg_pool2d"); }},
    LayerClass{"GlobalMaxPooling1D", [](Config& c) { return global_pooling(c, 1, "global_max_pool2d"); }},
    LayerClass{"GlobalMaxPooling2D", [](Config& c) { return global_pooling(c, 2, "global_max_pool2d"); }},
    LayerClass{"GlobalAveragePooling1D", [](Config& c) { return global_pooling(c, 1, "global_avg_pool2d"); }},
    LayerClass{"GlobalAveragePooling2D", [](Config& c) { return global_pooling(c, 2, "global_avg_pool2d"); }},
};

}  // namespace

std::span<const LayerClass> pooling_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
