// Layers that call another layer: TimeDistributed.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

struct Wrapped {
  std::string name;
  bool trainable = true;
  Layer layer;
};

// Returns the layer under `key`. Its unsupported features are listed.
std::optional<Wrapped> read_wrapped(Config& c, const std::string& key) {
  const Json* value = c.value(key);
  const KerasObject object = value ? keras_object(*value) : KerasObject{};
  const LayerParser parse = object.custom || object.name.empty() ? nullptr : find_layer(object.name);
  if (!parse) {
    c.issues().unknown(fmt::format("{}: {}={}", c.where(), key,
                                   object.name.empty() ? (value ? shown(*value) : "nothing") : object.name));
    if (object.custom) c.issues().custom_code();
    return std::nullopt;
  }
  Wrapped wrapped;
  Config inner(object.config, fmt::format("{}, {} ({})", c.where(), key, object.name), c.issues());
  wrapped.name = inner.text("name", key);
  wrapped.trainable = inner.flag("trainable", true);
  read_policy(inner);  // read but not used: Keras computes with the wrapper's policy
  inner.ignore({"activity_regularizer"});  // TimeDistributed calls the layer in a way that adds no such loss
  wrapped.layer = parse(inner);
  inner.finish();
  return wrapped;
}

// Reshapes [N,T,...] to [N*T,...], so that the wrapped layer sees every step as a sample.
Layer time_distributed(Config& c) {
  const auto wrapped = read_wrapped(c, "layer");
  const std::string where = c.where();
  Layer layer;
  if (!wrapped) return layer;
  const Layer inner = wrapped->layer;
  if (inner.couples_samples || inner.draws || inner.outputs != 1)
    c.issues().unknown(fmt::format("{}: layer '{}', whose steps are not independent", where, wrapped->name));
  layer.float32_weights = inner.float32_weights;
  layer.masking =
      inner.masking == Masking::kChanges || inner.masking == Masking::kMakes ? Masking::kChanges : Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    if (in[0].rank() < 2)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: a sample must have at least 2 dimensions, got [{}]", where, to_text(in[0])));
    const Shape step(std::vector<int64_t>(in[0].dims.begin() + 1, in[0].dims.end()));
    PLIMSOLL_ASSIGN(LayerShape made, inner.shape({&step, 1}, issues));
    PLIMSOLL_ASSIGN(LayerShape shape, checked_shape(with_batch(in[0][0], made.output()).dims, where));
    size_t own = 0;
    for (WeightSpec weight : made.weights) {
      weight.name = wrapped->name + "/" + weight.name;
      weight.path = "layer/" + (weight.path.empty() ? vars_path(own++) : weight.path);
      weight.frozen = weight.frozen || !wrapped->trainable;
      shape.weights.push_back(std::move(weight));
    }
    shape.sublayers.push_back(std::move(made));
    return shape;
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    std::vector<int64_t> dims = call.shape(call.in()).dims;
    const int64_t steps = dims[0] * dims[1];
    dims.erase(dims.begin());
    dims[0] = steps;
    const ValueId x = call.add("reshape", {call.in()}, {{"shape", dims}});
    const ValueId unmasked = kNone;
    const BuildCall step{call.b,         steps,   call.precision, call.training, call.trainable && wrapped->trainable,
                         call.call,      {&x, 1}, {&unmasked, 1}, call.weights,  call.computed.sublayers[0],
                         call.statistics};
    const LayerValues made = inner.build(step);
    return call.add("reshape", {made.outputs[0]}, {{"shape", call.output_dims()}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"TimeDistributed", time_distributed},
};

}  // namespace

std::span<const LayerClass> wrapping_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
