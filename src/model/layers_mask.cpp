// The Masking layer, which makes a mask from the values of its input.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

// Returns [rows]: 1 for each row of x [..,C] that differs from `value` in any channel, else 0.
ValueId rows_unlike(const BuildCall& call, ValueId x, double value) {
  std::vector<int64_t> column = call.shape(x).dims;
  column.back() = 1;
  const int64_t rows = Shape(column).elements();
  const ValueId above = call.add("relu", {call.add("affine", {x}, {{"scale", 1.0}, {"offset", -value}})});
  const ValueId below = call.add("relu", {call.add("affine", {x}, {{"scale", -1.0}, {"offset", value}})});
  const ValueId distance = call.add("reduce_to", {call.add("add", {above, below})}, {{"shape", column}});
  const std::vector<int64_t> flat{rows, 1};
  const ValueId ones =
      call.add("fill", {}, {{"shape", flat}, {"value", 1.0}, {"dtype", std::string(name_of(call.precision))}});
  return call.add("match", {call.add("reshape", {distance}, {{"shape", flat}}), ones},
                  {{"kind", std::string("binary")}, {"threshold", 0.0}});
}

Layer masking(Config& c) {
  const double value = c.real("mask_value", 0);
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kMakes;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0].rank() < 1) PLIMSOLL_TRY(need_rank(in[0], 1, where));
    return LayerShape(in[0]);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const std::vector<int64_t> dims = call.output_dims();
    std::vector<int64_t> rows(dims.begin(), dims.end() - 1), column = dims;
    column.back() = 1;
    const ValueId flat = rows_unlike(call, call.in(), value);
    ValueId counts = flat;
    if (call.b.graph().type(flat).dtype != call.precision)
      counts = call.add("cast", {flat}, {{"dtype", std::string(name_of(call.precision))}});
    counts = call.add("broadcast", {call.add("reshape", {counts}, {{"shape", column}})}, {{"shape", dims}});
    return {call.add("multiply", {call.in(), counts}), call.add("reshape", {flat}, {{"shape", rows}})};
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Masking", masking},
};

}  // namespace

std::span<const LayerClass> masking_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
