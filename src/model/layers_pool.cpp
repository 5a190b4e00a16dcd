// Pooling over windows, over whole images, and to a fixed size, of one, two or three spatial dimensions.
#include <fmt/format.h>

#include <array>

#include "model/channels_first.h"
#include "model/expression.h"
#include "model/geometry.h"

namespace plimsoll::engine {
namespace {

Layer pooling(Config& c, size_t rank, const std::string& op) {
  Geometry g;
  g.kernel = c.sizes("pool_size", rank, 1, Sizes(rank, 2));
  g.strides = c.sizes("strides", rank, 1, g.kernel);
  g.dilations = Sizes(rank, 1);
  if (c.choice("padding", {"valid", "same"}, "valid") == "same") g.padding = WindowPadding::kSame;
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(auto windows, place_windows(g, in[0], where));
    PLIMSOLL_ASSIGN(LayerShape shape, image_shape(windows, in[0].back(), where));
    shape.windows = std::move(windows);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId y = call.add(
        op_name(op, rank), {as_image(call, call.in(), rank)},
        {{"pool", op_sizes(g.kernel)}, {"strides", op_sizes(g.strides)}, {"pads", op_pads(call.computed.windows)}});
    return as_output(call, y, rank);
  };
  return with_data_format(c, layer);
}

// The ops over whole images take two dimensions. Which pixels are neighbours does not matter to them.
ValueId as_plane(const BuildCall& call, ValueId image, size_t rank) {
  if (rank < 3) return as_image(call, image, rank);
  const Shape volume = call.shape(image);
  return call.add("reshape", {image},
                  {{"shape", std::vector<int64_t>{volume[0], volume[1] * volume[2], volume[3], volume[4]}}});
}

// The mean of the steps [N,T,C] whose mask [N,T] is 1; NaN if there are none.
ValueId unmasked_mean(const BuildCall& call) {
  const Expression x(call.b, call.in());
  const Shape shape = x.shape();  // a copy: adding nodes moves the graph's values
  const Expression mask = Expression(call.b, call.masks[0]).cast(x.type().dtype).reshaped({shape[0], shape[1], 1});
  const Expression kept = select(mask.broadcast(shape), x, x.filled(0));
  return (sum(kept, {1}) / sum(mask, {1})).reshaped({shape[0], shape[2]}).id();
}

Layer global_pooling(Config& c, size_t rank, const std::string& op) {
  const bool keep = c.flag("keepdims", false);
  const std::string where = c.where();
  Layer layer;
  // Keras averages only the unmasked steps.
  const bool reads_mask = rank == 1 && op == "global_avg_pool2d";
  if (reads_mask) layer.masking = Masking::kReads;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank + 1, where));
    std::vector<int64_t> dims(keep ? rank : 0, 1);
    dims.push_back(in[0].back());
    return LayerShape(Shape(std::move(dims)));
  };
  layer.build = [=](const BuildCall& call) {
    const bool masked = reads_mask && call.masks[0] != kNone;
    const ValueId y = masked ? unmasked_mean(call) : call.add(op, {as_plane(call, call.in(), rank)});
    return keep ? call.add("reshape", {y}, {{"shape", call.output_dims()}}) : y;
  };
  return with_data_format(c, layer);
}

// Output position i of n covers the pixels from floor(i * size / n) to ceil((i + 1) * size / n). Keras pools one
// dimension after the other, which also decides which of several maxima gets the gradient.
Layer adaptive_pooling(Config& c, size_t rank, bool max) {
  const Sizes size = c.sizes("output_size", rank, 1);
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank + 1, where));
    std::vector<int64_t> dims = size;
    dims.push_back(in[0].back());
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) {
    ValueId y = call.in();
    for (size_t d = 0; d < rank; ++d) {
      if (call.shape(y)[d + 1] == size[d]) continue;
      Attrs attrs = {{"axis", static_cast<int64_t>(d + 1)}, {"size", size[d]}};
      if (!max) attrs.set("method", "average");
      y = call.b.add(max ? "adaptive_max_pool" : "resample", {y}, attrs)[0];
    }
    return y;
  };
  return with_data_format(c, layer);
}

constexpr std::array kLayers = {
    LayerClass{"MaxPooling1D", [](Config& c) { return pooling(c, 1, "max_pool"); }},
    LayerClass{"MaxPooling2D", [](Config& c) { return pooling(c, 2, "max_pool"); }},
    LayerClass{"MaxPooling3D", [](Config& c) { return pooling(c, 3, "max_pool"); }},
    LayerClass{"AveragePooling1D", [](Config& c) { return pooling(c, 1, "avg_pool"); }},
    LayerClass{"AveragePooling2D", [](Config& c) { return pooling(c, 2, "avg_pool"); }},
    LayerClass{"AveragePooling3D", [](Config& c) { return pooling(c, 3, "avg_pool"); }},
    LayerClass{"GlobalMaxPooling1D", [](Config& c) { return global_pooling(c, 1, "global_max_pool2d"); }},
    LayerClass{"GlobalMaxPooling2D", [](Config& c) { return global_pooling(c, 2, "global_max_pool2d"); }},
    LayerClass{"GlobalMaxPooling3D", [](Config& c) { return global_pooling(c, 3, "global_max_pool2d"); }},
    LayerClass{"GlobalAveragePooling1D", [](Config& c) { return global_pooling(c, 1, "global_avg_pool2d"); }},
    LayerClass{"GlobalAveragePooling2D", [](Config& c) { return global_pooling(c, 2, "global_avg_pool2d"); }},
    LayerClass{"GlobalAveragePooling3D", [](Config& c) { return global_pooling(c, 3, "global_avg_pool2d"); }},
    LayerClass{"AdaptiveMaxPooling1D", [](Config& c) { return adaptive_pooling(c, 1, true); }},
    LayerClass{"AdaptiveMaxPooling2D", [](Config& c) { return adaptive_pooling(c, 2, true); }},
    LayerClass{"AdaptiveMaxPooling3D", [](Config& c) { return adaptive_pooling(c, 3, true); }},
    LayerClass{"AdaptiveAveragePooling1D", [](Config& c) { return adaptive_pooling(c, 1, false); }},
    LayerClass{"AdaptiveAveragePooling2D", [](Config& c) { return adaptive_pooling(c, 2, false); }},
    LayerClass{"AdaptiveAveragePooling3D", [](Config& c) { return adaptive_pooling(c, 3, false); }},
};

}  // namespace

std::span<const LayerClass> pooling_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
