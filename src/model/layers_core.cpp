// Dense, and the layers that only move values: Flatten, Reshape.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

Layer dense(Config& c) {
  const int64_t units = c.integer("units", 1, kMostElements);
  const bool use_bias = c.flag("use_bias", true);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform");
  const WeightConfig bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  c.only("quantization_config");
  c.only("lora_rank");
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0].rank() == 0) return fail(ErrorCode::kBadGeometry, where + ": a sample must have at least one dimension");
    std::vector<int64_t> dims = in[0].dims;
    dims.back() = units;
    PLIMSOLL_ASSIGN(LayerShape shape, checked_shape(std::move(dims), where));
    PLIMSOLL_ASSIGN(Shape matrix, checked_shape({in[0].back(), units}, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(matrix)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{units}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const Shape in = call.shape(call.in());
    ValueId x = call.in();
    const bool matrix = in.rank() == 2;
    if (!matrix) x = call.add("reshape", {x}, {{"shape", std::vector<int64_t>{in.elements() / in.back(), in.back()}}});
    x = call.add("matmul", {x, call.weights[0]});
    if (use_bias) x = call.add("bias_add", {x, call.weights[1]});
    if (!matrix) x = call.add("reshape", {x}, {{"shape", call.output_dims()}});
    return activation(call, x);
  };
  return layer;
}

// For a layer that only moves elements: integers stay integers, and are not rounded in half precision.
Layer of_any_kind(Layer layer) {
  layer.takes_integers = true;
  layer.typed_shape = [shape = layer.shape](std::span<const TensorSpec> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(LayerShape made, shape({&in[0].sample, 1}, issues));
    made.kinds = {in[0].kind};
    return made;
  };
  return layer;
}

Layer flatten(Config& c) {
  const bool first = c.choice("data_format", {"channels_last", "channels_first"}, "channels_last") == "channels_first";
  Layer layer;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    return LayerShape(Shape{in[0].elements()});
  };
  layer.build = [=](const BuildCall& call) {
    ValueId x = call.in();
    if (const auto rank = static_cast<int64_t>(call.shape(x).rank()); first && rank > 2) {
      std::vector<int64_t> perm = {0};  // the channels last, as a channels_last image would be flattened
      for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
      perm.push_back(1);
      x = call.add("transpose", {x}, {{"perm", perm}});
    }
    return call.add("reshape", {x}, {{"shape", call.output_dims()}});
  };
  return first ? layer : of_any_kind(std::move(layer));
}

Result<Shape> reshaped(const Shape& in, std::vector<int64_t> target, const std::string& where) {
  const auto mismatch = [&] {
    return fail(ErrorCode::kBadGeometry,
                fmt::format("{}: [{}] cannot be reshaped to [{}]", where, to_text(in), fmt::join(target, ",")));
  };
  int64_t known = 1;
  int64_t* free = nullptr;
  for (int64_t& d : target) {
    if (d == -1 && !free) {
      free = &d;
      continue;
    }
    if (d <= 0 || d > in.elements() / known) return mismatch();
    known *= d;
  }
  if (free ? in.elements() % known != 0 : in.elements() != known) return mismatch();
  if (free) *free = in.elements() / known;
  return checked_shape(std::move(target), where);
}

Layer reshape(Config& c) {
  std::vector<int64_t> target;
  const Json* value = c.value("target_shape");
  bool good = value && value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    const auto n = as_integer((*value)[i]);
    good = n.has_value();
    target.push_back(n.value_or(1));
  }
  if (!good)
    c.issues().reject(fmt::format("{}: 'target_shape' must be a list of integers, got {}", c.where(),
                                  value ? shown(*value) : "nothing"));
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    return reshaped(in[0], target, where);
  };
  layer.build = [](const BuildCall& call) { return call.add("reshape", {call.in()}, {{"shape", call.output_dims()}}); };
  return of_any_kind(std::move(layer));
}

constexpr std::array kLayers = {
    LayerClass{"Dense", dense},
    LayerClass{"Flatten", flatten},
    LayerClass{"Reshape", reshape},
};

}  // namespace

std::span<const LayerClass> core_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
