// Layer classes that keras.applications defines for its own models.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"
#include "model/values.h"

namespace plimsoll::engine {
namespace {

// ConvNeXt: a factor per channel.
Layer layer_scale(Config& c) {
  const double initial = c.real("init_values", 1);
  const int64_t channels = c.integer("projection_dim", 1, kMostElements);
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0].rank() == 0 || in[0].back() != channels)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: [{}] must have {} channels", where, to_text(in[0]), channels));
    WeightConfig gamma;
    gamma.initializer = {{"class_name", "Constant"}, {"config", {{"value", initial}}}};
    return LayerShape(in[0], {gamma.spec("gamma", Shape{channels})});
  };
  layer.build = [](const BuildCall& call) -> LayerValues {
    return call.add("channel_scale", {call.in(), call.weights[0]});
  };
  return layer;
}

// InceptionResNetV2: the first input plus the scaled second one.
Layer custom_scale(Config& c) {
  const double scale = c.real("scale", 1);
  const std::string where = c.where();
  Layer layer;
  layer.least_inputs = layer.most_inputs = 2;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0] != in[1])
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: [{}] and [{}] must be equal", where, to_text(in[0]), to_text(in[1])));
    return LayerShape(in[0]);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    return call.add("add", {call.in(), call.add("affine", {call.inputs[1]}, {{"scale", scale}, {"offset", 0.0}})});
  };
  return layer;
}

// ConvNeXt: drops whole samples in training.
Layer stochastic_depth(Config& c) {
  const double rate = c.real("drop_path_rate", 0);
  if (rate < 0 || rate >= 1)
    c.issues().reject(fmt::format("{}: 'drop_path_rate' must be at least 0 and below 1, got {}", c.where(), rate));
  Layer layer;
  layer.draws = true;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    if (!call.training || rate == 0) return call.in();
    const Shape& shape = call.shape(call.in());
    const int64_t sample = shape.elements() / shape[0];
    const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
    const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
    return call.add("dropout", {call.in(), rng, first},
                    {{"rate", rate}, {"call", call.call}, {"noise_inner", sample}, {"noise_size", int64_t{1}}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"LayerScale", layer_scale},
    LayerClass{"CustomScaleLayer", custom_scale},
    LayerClass{"StochasticDepth", stochastic_depth},
};

}  // namespace

std::span<const LayerClass> application_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
