// Dense, and the layers that only move or scale values: Flatten, Reshape, Dropout, Rescaling.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"
#include "model/values.h"

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
  c.only("activity_regularizer");
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

Layer flatten(Config& c) {
  c.choice("data_format", {"channels_last"}, "channels_last");
  Layer layer;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    return LayerShape(Shape{in[0].elements()});
  };
  layer.build = [](const BuildCall& call) { return call.add("reshape", {call.in()}, {{"shape", call.output_dims()}}); };
  return layer;
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
  return layer;
}

Layer dropout(Config& c) {
  const double rate = c.real("rate", -1);
  if (rate < 0 || rate > 1)
    c.issues().reject(fmt::format("{}: 'rate' must lie between 0 and 1, got {}", c.where(), rate));
  c.only("noise_shape");
  c.ignore({"seed"});  // masks are drawn from the run's seed
  Layer layer;
  layer.draws = true;
  layer.masking = Masking::kPasses;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [=](const BuildCall& call) {
    if (!call.training || rate == 0) return call.in();
    if (rate == 1) return call.add("affine", {call.in()}, {{"scale", 0.0}, {"offset", 0.0}});
    const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
    const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
    return call.add("dropout", {call.in(), rng, first}, {{"rate", rate}, {"call", call.call}});
  };
  return layer;
}

Layer rescaling(Config& c) {
  const auto number = [&](const char* key, double otherwise) {
    const Json* value = c.value(key);
    if (!value) return otherwise;
    if (const auto real = as_number(*value)) return *real;
    c.issues().unknown(
        fmt::format("{}: {}={}: only one number for all channels is supported", c.where(), key, shown(*value)));
    return otherwise;
  };
  const double scale = number("scale", 1), offset = number("offset", 0);
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [=](const BuildCall& call) {
    return call.add("affine", {call.in()}, {{"scale", scale}, {"offset", offset}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Dense", dense},     LayerClass{"Flatten", flatten},     LayerClass{"Reshape", reshape},
    LayerClass{"Dropout", dropout}, LayerClass{"Rescaling", rescaling},
};

}  // namespace

std::span<const LayerClass> core_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
