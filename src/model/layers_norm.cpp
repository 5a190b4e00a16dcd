// BatchNormalization and LayerNormalization, over the last axis.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

// Checks that `axis` is the last dimension of [batch, sample...]. Any other axis is listed as unsupported.
Status last_axis(const std::vector<int64_t>& axis, const Shape& sample, const std::string& where, Issues& issues) {
  if (sample.rank() == 0) return fail(ErrorCode::kBadGeometry, where + ": a sample must have at least one dimension");
  for (int64_t a : axis)
    if (!positive_axis(a, sample.rank() + 1))
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: axis {} is outside [batch,{}]", where, a, to_text(sample)));
  if (axis.size() != 1 || *positive_axis(axis[0], sample.rank() + 1) != static_cast<int64_t>(sample.rank()))
    issues.unknown(fmt::format("{}: axis=[{}], which is not only the last axis", where, fmt::join(axis, ",")));
  return {};
}

// Reads an integer or a list of integers: a built LayerNormalization writes a list.
std::vector<int64_t> read_axis(Config& c) {
  const Json* value = c.value("axis");
  if (!value) return {-1};
  std::vector<int64_t> axis;
  bool good = true;
  const auto take = [&](const Json& j) {
    const auto n = as_integer(j);
    good = good && n;
    axis.push_back(n.value_or(-1));
  };
  if (value->is_array())
    for (const Json& j : *value) take(j);
  else
    take(*value);
  if (!good) c.issues().reject(fmt::format("{}: 'axis' must be an integer, got {}", c.where(), shown(*value)));
  return axis;
}

struct BatchNorm {
  double momentum = 0, epsilon = 0;
  bool scale = false, center = false;

  ValueId build(const BuildCall& call) const {
    size_t next = 0;
    const ValueId gamma = scale ? call.weights[next++] : kNone;
    const ValueId beta = center ? call.weights[next++] : kNone;
    const ValueId moving_mean = call.weights[next], moving_variance = call.weights[next + 1];
    Attrs attrs{{"epsilon", epsilon}, {"scale", scale}, {"center", center}};
    ValueId mean = held(call, moving_mean), variance = held(call, moving_variance);
    if (call.training && call.trainable) {
      const auto stats = call.b.add("batch_norm_stats", {call.in()});
      track(call, moving_mean, stats[0]);
      track(call, moving_variance, stats[1]);
      mean = stats[0];
      variance = stats[1];
      attrs.set("batch_stats", true);
    }
    std::vector<ValueId> inputs{call.in(), mean, variance};
    if (scale) inputs.push_back(gamma);
    if (center) inputs.push_back(beta);
    return call.add("batch_norm_apply", std::move(inputs), std::move(attrs));
  }

  static ValueId held(const BuildCall& call, ValueId statistic) {
    const auto it = call.statistics.find(statistic);
    return it == call.statistics.end() ? statistic : it->second;
  }
  void track(const BuildCall& call, ValueId statistic, ValueId batch) const {
    const auto temporaries = call.b.in_category(Category::kTemporaries);
    call.statistics[statistic] = call.add("moving_average", {held(call, statistic), batch}, {{"momentum", momentum}});
  }
};

Layer batch_normalization(Config& c) {
  const BatchNorm norm{c.real("momentum", 0.99), c.real("epsilon", 1e-3), c.flag("scale", true),
                       c.flag("center", true)};
  const std::vector<int64_t> axis = read_axis(c);
  const WeightConfig gamma = read_weight(c, "gamma", "ones"), beta = read_weight(c, "beta", "zeros");
  const WeightConfig mean = read_weight(c, "moving_mean", "zeros"),
                     variance = read_weight(c, "moving_variance", "ones");
  c.only("synchronized", {false});
  c.only("renorm", {false});
  c.ignore({"renorm_clipping", "renorm_momentum"});  // meaningless without renorm
  const std::string where = c.where();
  Layer layer;
  layer.couples_samples = true;
  layer.masking = Masking::kChanges;  // statistics would be those of the unmasked rows
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_TRY(last_axis(axis, in[0], where, issues));
    const Shape channels{in[0].back()};
    LayerShape shape(in[0]);
    if (norm.scale) shape.weights.push_back(gamma.spec("gamma", channels));
    if (norm.center) shape.weights.push_back(beta.spec("beta", channels));
    for (auto spec : {mean.spec("moving_mean", channels), variance.spec("moving_variance", channels)}) {
      spec.frozen = true;
      shape.weights.push_back(std::move(spec));
    }
    return shape;
  };
  layer.build = [=](const BuildCall& call) { return norm.build(call); };
  return layer;
}

Layer layer_normalization(Config& c) {
  const double epsilon = c.real("epsilon", 1e-3);
  const bool scale = c.flag("scale", true), center = c.flag("center", true);
  const std::vector<int64_t> axis = read_axis(c);
  const WeightConfig gamma = read_weight(c, "gamma", "ones"), beta = read_weight(c, "beta", "zeros");
  c.only("rms_scaling", {false});
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_TRY(last_axis(axis, in[0], where, issues));
    const Shape channels{in[0].back()};
    LayerShape shape(in[0]);
    if (scale) shape.weights.push_back(gamma.spec("gamma", channels));
    if (center) shape.weights.push_back(beta.spec("beta", channels));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    std::vector<ValueId> inputs{call.in()};
    inputs.insert(inputs.end(), call.weights.begin(), call.weights.end());
    return call.add("layer_norm", std::move(inputs), {{"epsilon", epsilon}, {"scale", scale}, {"center", center}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"BatchNormalization", batch_normalization},
    LayerClass{"LayerNormalization", layer_normalization},
};

}  // namespace

std::span<const LayerClass> normalization_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
