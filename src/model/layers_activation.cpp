// Activations by name, as a layer, or as a layer that is given as another layer's activation.
#include <fmt/format.h>

#include <array>
#include <set>

#include "model/activations.h"
#include "model/layer.h"
#include "model/names.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

Activation relu_layer(Config& c) {
  const auto max_value = c.optional_real("max_value");
  const double slope = c.real("negative_slope", 0), threshold = c.real("threshold", 0);
  if (max_value.value_or(0) < 0 || slope < 0 || threshold < 0)
    c.issues().reject(fmt::format("{}: max_value, negative_slope and threshold must not be negative", c.where()));
  return relu_activation(max_value, slope, threshold);
}

Activation leaky_relu_layer(Config& c) {
  const double slope = c.real("negative_slope", 0.3);
  if (slope < 0) c.issues().reject(fmt::format("{}: negative_slope must not be negative", c.where()));
  return relu_activation({}, slope, 0);
}

Activation elu_layer(Config& c) {
  return elu_activation(c.real("alpha", 1));
}

Layer same_shape(Activation activation) {
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [activation = std::move(activation)](const BuildCall& call) { return activation(call, call.in()); };
  return layer;
}

Layer softmax_layer(Config& c) {
  std::vector<int64_t> axes = {-1};
  if (const Json* value = c.value("axis")) {
    const Json list = value->is_array() ? *value : Json::array({*value});
    axes.clear();
    for (const Json& one : list)
      if (const auto n = as_integer(one)) axes.push_back(*n);
    if (axes.empty() || axes.size() != list.size())
      c.issues().reject(
          fmt::format("{}: 'axis' must be an integer or a list of them, got {}", c.where(), shown(*value)));
  }
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kChanges;  // masked classes would get no probability
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    std::set<int64_t> seen;
    for (int64_t axis : axes) {
      const auto at = positive_axis(axis, in[0].rank() + 1);
      if (!at || in[0].rank() == 0 || !seen.insert(*at).second)
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: axis {} is outside [batch,{}], or given twice", where, axis, to_text(in[0])));
      if (*at == 0) issues.unknown(fmt::format("{}: axis={}, the batch", where, axis));
    }
    return LayerShape(in[0]);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    return along_axes(call, call.in(), axes, *named_activation("softmax"));
  };
  return layer;
}

// Keras's glu halves the last axis, and so does not keep the shape as other activations do. Its other layers expect the
// whole axis behind it, so only Activation has it.
Layer glu_layer(Config& c) {
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0].rank() == 0 || in[0].back() % 2 != 0)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: glu needs an even last dimension, got [{}]", where, to_text(in[0])));
    Shape half = in[0];
    half.dims.back() /= 2;
    return LayerShape(std::move(half));
  };
  layer.build = [](const BuildCall& call) -> LayerValues {
    const Shape shape = call.shape(call.in());
    const auto axis = static_cast<int64_t>(shape.rank()) - 1;
    const auto half = [&](int64_t begin) {
      return call.add("slice", {call.in()}, {{"axis", axis}, {"begin", begin}, {"size", shape.back() / 2}});
    };
    const ValueId gate = call.add("sigmoid", {half(shape.back() / 2)});
    return call.add("multiply", {half(0), gate});
  };
  return layer;
}

Layer activation_layer(Config& c) {
  const Json* value = c.value("activation");
  const bool glu = value && !keras_object(*value).custom && keras_object(*value).name == "glu";
  return glu ? glu_layer(c) : same_shape(read_activation(c, "activation"));
}

// x times a weight that is broadcast over it; a weight per channel needs no broadcast tensor.
ValueId scaled_by(const BuildCall& call, ValueId x, ValueId weight) {
  const Shape whole = call.shape(x), shape = call.shape(weight);
  if (shape.rank() > 0 && shape.elements() == shape.back() && shape.back() == whole.back()) {
    const std::vector<int64_t> channels{shape.back()};
    const ValueId vector = shape.rank() == 1 ? weight : call.add("reshape", {weight}, {{"shape", channels}});
    return call.add("channel_scale", {x, vector});
  }
  const ValueId repeated = broadcast_to(call.b, weight, whole);
  return call.add("multiply", {x, repeated});
}

// alpha has the shape of a sample, with 1 along the shared axes.
Layer prelu(Config& c) {
  const WeightConfig alpha = read_weight(c, "alpha", "zeros");
  std::vector<int64_t> shared;
  if (const Json* value = c.value("shared_axes")) {
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& one : list) {
      const auto axis = as_integer(one);
      if (axis)
        shared.push_back(*axis);
      else
        c.issues().reject(fmt::format("{}: 'shared_axes' must be integers, got {}", c.where(), shown(*value)));
    }
  }
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    Shape weight = in[0];
    const auto rank = static_cast<int64_t>(in[0].rank());
    for (int64_t axis : shared) {
      // Keras subtracts 1 from the axis and indexes a Python list: 0 is the last axis, as is `rank`.
      const int64_t at = axis - 1 < 0 ? axis - 1 + rank : axis - 1;
      if (at < 0 || at >= rank)
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: shared axis {} is outside [batch,{}]", where, axis, to_text(in[0])));
      weight.dims[static_cast<size_t>(at)] = 1;
    }
    return LayerShape(in[0], {alpha.spec("alpha", std::move(weight))});
  };
  layer.build = [](const BuildCall& call) -> LayerValues {
    const ValueId x = call.in();
    const ValueId negative = call.add("affine", {x}, {{"scale", -1.0}, {"offset", 0.0}});
    const ValueId below = call.add("relu", {negative});
    return call.add("subtract", {call.add("relu", {x}), scaled_by(call, below, call.weights[0])});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Activation", activation_layer},
    LayerClass{"ReLU", [](Config& c) { return same_shape(relu_layer(c)); }},
    LayerClass{"LeakyReLU", [](Config& c) { return same_shape(leaky_relu_layer(c)); }},
    LayerClass{"ELU", [](Config& c) { return same_shape(elu_layer(c)); }},
    LayerClass{"PReLU", prelu},
    LayerClass{"Softmax", softmax_layer},
    LayerClass{"Identity", [](Config&) { return same_shape(*named_activation("linear")); }},
};

}  // namespace

Activation read_activation(Config& config, const std::string& key) {
  const Json* value = config.value(key);
  const Activation linear = *named_activation("linear");
  if (!value) return linear;
  const KerasObject object = keras_object(*value);
  const auto refuse = [&] {
    config.issues().unknown(fmt::format("{}: {}={}{}", config.where(), key, shown(*value),
                                        object.custom ? "" : did_you_mean(activation_names(), object.name)));
    if (object.custom) config.issues().custom_code();
    return linear;
  };
  if (object.custom) return refuse();
  if (value->is_string() || object.function) {
    const auto found = named_activation(object.name);
    return found ? *found : refuse();
  }
  // An activation may be given as a layer: Dense(..., activation=LeakyReLU(0.1)).
  Config inner(object.config, fmt::format("{}, {}", config.where(), key), config.issues());
  inner.ignore({"name", "trainable"});
  if (read_policy(inner) != read_policy(config))
    config.issues().unknown(fmt::format("{}: its dtype differs from its layer's", inner.where()));
  Activation activation;
  if (object.name == "ReLU")
    activation = relu_layer(inner);
  else if (object.name == "LeakyReLU")
    activation = leaky_relu_layer(inner);
  else if (object.name == "ELU")
    activation = elu_layer(inner);
  else if (object.name == "Activation")
    activation = read_activation(inner, "activation");
  else if (object.name == "Identity")
    activation = linear;
  else if (object.name == "Softmax" && !inner.value("axis"))
    activation = *named_activation("softmax");
  else
    return refuse();
  inner.finish();
  return activation;
}

std::span<const LayerClass> activation_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
