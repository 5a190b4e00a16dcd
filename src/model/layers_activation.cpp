// Activations, by name or as a layer. Softmax and sigmoid are single nodes, so that a loss can find the logits before
// them.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"
#include "model/names.h"

namespace plimsoll::engine {
namespace {

Activation plain(const std::string& op, const Attrs& attrs = {}) {
  return [=](const BuildCall& call, ValueId x) { return call.add(op, {x}, attrs); };
}

Activation relu(std::optional<double> max_value, double negative_slope, double threshold) {
  Attrs attrs;
  if (max_value) attrs.set("max_value", *max_value);
  if (negative_slope != 0) attrs.set("negative_slope", negative_slope);
  if (threshold != 0) attrs.set("threshold", threshold);
  return plain("relu", attrs);
}

Activation linear() {
  return [](const BuildCall&, ValueId x) { return x; };
}

// Keras's functions with their default arguments. The string "leaky_relu" has slope 0.2, the layer has 0.3.
std::optional<Activation> named_activation(const std::string& name) {
  if (name == "linear") return linear();
  if (name == "relu") return relu({}, 0, 0);
  if (name == "relu6") return relu(6, 0, 0);
  if (name == "leaky_relu") return relu({}, 0.2, 0);
  if (name == "elu") return plain("elu", {{"alpha", 1.0}});
  if (name == "gelu") return plain("gelu", {{"approximate", false}});
  if (name == "silu" || name == "swish") return plain("silu");
  if (name == "hard_silu" || name == "hard_swish") return plain("hard_silu");
  if (name == "sigmoid" || name == "hard_sigmoid" || name == "tanh" || name == "softmax") return plain(name);
  return std::nullopt;
}

Activation relu_layer(Config& c) {
  const auto max_value = c.optional_real("max_value");
  const double slope = c.real("negative_slope", 0), threshold = c.real("threshold", 0);
  if (max_value.value_or(0) < 0 || slope < 0 || threshold < 0)
    c.issues().reject(fmt::format("{}: max_value, negative_slope and threshold must not be negative", c.where()));
  return relu(max_value, slope, threshold);
}

Activation leaky_relu_layer(Config& c) {
  return relu({}, c.real("negative_slope", 0.3), 0);
}

Activation elu_layer(Config& c) {
  return plain("elu", {{"alpha", c.real("alpha", 1)}});
}

Layer same_shape(Activation activation) {
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [activation = std::move(activation)](const BuildCall& call) { return activation(call, call.in()); };
  return layer;
}

Layer softmax_layer(Config& c) {
  int64_t axis = -1;
  if (const Json* value = c.value("axis")) {
    const Json& one = value->is_array() && value->size() == 1 ? (*value)[0] : *value;
    if (const auto n = as_integer(one))
      axis = *n;
    else
      c.issues().unknown(fmt::format("{}: axis={}", c.where(), shown(*value)));
  }
  Layer layer = same_shape(plain("softmax"));
  layer.masking = Masking::kChanges;  // masked classes would get no probability
  const std::string where = c.where();
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    const size_t rank = in[0].rank() + 1;
    if (rank == 1) return fail(ErrorCode::kBadGeometry, where + ": a sample must have at least one dimension");
    const auto at = positive_axis(axis, rank);
    if (!at)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: axis {} is outside [batch,{}]", where, axis, to_text(in[0])));
    if (*at != static_cast<int64_t>(in[0].rank()))
      issues.unknown(fmt::format("{}: axis={}, not the last", where, axis));
    return LayerShape(in[0]);
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Activation", [](Config& c) { return same_shape(read_activation(c, "activation")); }},
    LayerClass{"ReLU", [](Config& c) { return same_shape(relu_layer(c)); }},
    LayerClass{"LeakyReLU", [](Config& c) { return same_shape(leaky_relu_layer(c)); }},
    LayerClass{"ELU", [](Config& c) { return same_shape(elu_layer(c)); }},
    LayerClass{"Softmax", softmax_layer},
};

}  // namespace

Activation read_activation(Config& config, const std::string& key) {
  const Json* value = config.value(key);
  if (!value) return linear();
  const KerasObject object = keras_object(*value);
  const auto refuse = [&] {
    config.issues().unknown(fmt::format("{}: {}={}{}", config.where(), key, shown(*value),
                                        object.custom ? "" : did_you_mean(activation_names(), object.name)));
    if (object.custom) config.issues().custom_code();
    return linear();
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
  else
    return refuse();
  inner.finish();
  return activation;
}

std::span<const LayerClass> activation_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
