// Layers that move values: Permute, RepeatVector, and the margins of images with three dimensions.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/layers_shape.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

using Margins = std::vector<std::array<int64_t, 2>>;  // before and after the image, per dimension

Layer permute(Config& c) {
  std::vector<int64_t> perm = {0};
  const Json* value = c.value("dims");
  for (size_t i = 0; value && value->is_array() && i < value->size(); ++i)
    perm.push_back(as_integer((*value)[i]).value_or(0));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i) || sorted.size() == 1) {
      c.issues().reject(fmt::format("{}: 'dims' must name each dimension from 1 on once, got {}", c.where(),
                                    value ? shown(*value) : "nothing"));
      break;
    }
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], perm.size() - 1, where));
    Shape shape;
    for (size_t i = 1; i < perm.size(); ++i) shape.dims.push_back(in[0][static_cast<size_t>(perm[i] - 1)]);
    return LayerShape(shape);
  };
  layer.build = [=](const BuildCall& call) { return call.add("transpose", {call.in()}, {{"perm", perm}}); };
  return layer;
}

Layer repeat_vector(Config& c) {
  const int64_t n = c.integer("n", 1, kMostElements);
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], 1, where));
    return checked_shape({n, in[0][0]}, where);
  };
  layer.build = [=](const BuildCall& call) {
    const Shape x = call.shape(call.in());
    const ValueId row = call.add("reshape", {call.in()}, {{"shape", std::vector<int64_t>{x[0], 1, x[1]}}});
    return broadcast_to(call.b, row, Shape(call.output_dims()));
  };
  return layer;
}

// Margins of an image of three dimensions in either data format: `sign` is 1 to add them and -1 to remove them.
Layer change_margins(Config& c, const Margins& margins, int64_t sign) {
  const bool first = c.choice("data_format", {"channels_last", "channels_first"}, "channels_last") == "channels_first";
  const std::string where = c.where();
  const auto dimension = [=](size_t d) { return first ? d + 1 : d; };  // of a sample
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], margins.size() + 1, where));
    std::vector<int64_t> dims = in[0].dims;
    for (size_t d = 0; d < margins.size(); ++d) {
      int64_t& size = dims[dimension(d)];
      size += sign * (margins[d][0] + margins[d][1]);
      if (size < 1)
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: cropping {} and {} removes all of {}", where,
                                                         margins[d][0], margins[d][1], in[0][dimension(d)]));
    }
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) {
    const Shape x = call.shape(call.in());
    std::vector<int64_t> pads(2 * x.rank(), 0), begin(x.rank(), 0);
    for (size_t d = 0; d < margins.size(); ++d) {
      const size_t at = dimension(d) + 1;
      pads[2 * at] = begin[at] = margins[d][0];
      pads[2 * at + 1] = margins[d][1];
    }
    if (sign > 0)
      return call.add("pad", {call.in()}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
    return call.add("strided_slice", {call.in()},
                    {{"begin", begin}, {"size", call.output_dims()}, {"strides", std::vector<int64_t>(x.rank(), 1)}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Permute", permute},
    LayerClass{"RepeatVector", repeat_vector},
    LayerClass{"ZeroPadding3D", [](Config& c) { return change_margins(c, c.margins("padding", 3, 1), 1); }},
    LayerClass{"Cropping3D", [](Config& c) { return change_margins(c, c.margins("cropping", 3, 1), -1); }},
};

}  // namespace

std::span<const LayerClass> shape_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
