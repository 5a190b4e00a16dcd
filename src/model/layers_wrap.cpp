// Layers that call another layer: TimeDistributed, SpectralNormalization.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "model/expression.h"
#include "model/layer.h"
#include "model/model_layer.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

struct Wrapped {
  std::string name;
  bool trainable = true;
  Layer layer;
  int64_t calls = 1;  // of inner layers, if it is a model
};

// Returns the model under `key`.
std::optional<Wrapped> read_wrapped_model(Config& c, const std::string& key, const Json& value) {
  const auto model = read_model_layer(value, read_policy(c), fmt::format("{}, {}", c.where(), key), c.issues());
  if (!model) return std::nullopt;
  const Json* config = member(value, "config");
  return Wrapped{text_member(*config, "name"), true, model->layer, model->calls};
}

// Returns the layer under `key`. Its unsupported features are listed. Keras computes with the wrapper's policy.
std::optional<Wrapped> read_wrapped(Config& c, const std::string& key, bool with_activity) {
  const Json* value = c.value(key);
  const KerasObject object = value ? keras_object(*value) : KerasObject{};
  if (is_model_class(object.name) && !object.custom) return read_wrapped_model(c, key, *value);
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
  read_policy(inner);  // read but not used
  const ActivityPenalty activity = read_activity(inner);
  wrapped.layer = parse(inner);
  if (with_activity && activity) wrapped.layer.activity = activity;
  if (!with_activity) wrapped.layer.activity = {};
  inner.finish();
  return wrapped;
}

// Appends the weights of the wrapped layer, which lie in its group of the file.
void add_weights(const Wrapped& wrapped, const LayerShape& made, LayerShape& shape) {
  size_t own = 0;
  for (WeightSpec weight : made.weights) {
    weight.name = wrapped.name + "/" + weight.name;
    weight.path = "layer/" + (weight.path.empty() ? vars_path(own++) : weight.path);
    weight.frozen = weight.frozen || !wrapped.trainable;
    shape.weights.push_back(std::move(weight));
  }
}

// The wrapped layer sees every step as a sample: [N,T,...] becomes [N*T,...].
ValueId all_steps(const BuildCall& call, const Wrapped& wrapped) {
  std::vector<int64_t> dims = call.shape(call.in()).dims;
  const int64_t steps = dims[0] * dims[1];
  dims.erase(dims.begin());
  dims[0] = steps;
  const ValueId x = call.add("reshape", {call.in()}, {{"shape", dims}});
  const ValueId unmasked = kNone;
  const BuildCall step{call.b,         steps,   call.precision, call.training, call.trainable && wrapped.trainable,
                       call.call,      {&x, 1}, {&unmasked, 1}, call.weights,  call.computed.sublayers[0],
                       call.statistics};
  return call.add("reshape", {wrapped.layer.build(step).outputs[0]}, {{"shape", call.output_dims()}});
}

// A layer whose steps are not independent is called once per step, in order: its statistics move with every step, and
// every step has random numbers of its own.
ValueId each_step(const BuildCall& call, const Wrapped& wrapped) {
  std::vector<int64_t> in = call.shape(call.in()).dims, out = call.output_dims();
  const int64_t steps = in[1];
  in.erase(in.begin() + 1);
  out[1] = 1;
  std::vector<ValueId> made;
  for (int64_t t = 0; t < steps; ++t) {
    const ValueId one = call.add("slice", {call.in()}, {{"axis", int64_t{1}}, {"begin", t}, {"size", int64_t{1}}});
    const ValueId x = call.add("reshape", {one}, {{"shape", in}});
    const ValueId unmasked = kNone;
    const BuildCall step{call.b,
                         call.batch,
                         call.precision,
                         call.training,
                         call.trainable && wrapped.trainable,
                         call.call + t * wrapped.calls * kCallsApart,
                         {&x, 1},
                         {&unmasked, 1},
                         call.weights,
                         call.computed.sublayers[0],
                         call.statistics};
    made.push_back(call.add("reshape", {wrapped.layer.build(step).outputs[0]}, {{"shape", out}}));
  }
  return made.size() == 1 ? made[0] : call.add("concat", std::move(made), {{"axis", int64_t{1}}});
}

Layer time_distributed(Config& c) {
  constexpr int64_t kMostCalls = 1 << 15;                // of the layers of a model, over all steps
  constexpr int64_t kMostSteps = 1024;                   // of a layer that is called once per step
  const auto wrapped = read_wrapped(c, "layer", false);  // it calls the layer in a way that adds no activity penalty
  const std::string where = c.where();
  Layer layer;
  if (!wrapped) return layer;
  const Layer& inner = wrapped->layer;
  const bool apart = inner.couples_samples || inner.draws, inner_draws = inner.draws;
  if (inner.outputs != 1 || inner.replace_weights)
    c.issues().unknown(fmt::format("{}: layer '{}', whose steps are not independent", where, wrapped->name));
  if (inner.reads_integers)
    c.issues().unknown(fmt::format("{}: layer '{}' reads ids; an Embedding takes them at every step without it", where,
                                   wrapped->name));
  layer.float32_weights = inner.float32_weights;
  layer.couples_samples = inner.couples_samples && wrapped->trainable;
  layer.draws = inner.draws;
  layer.takes_integers = inner.takes_integers;
  const bool reads_mask =
      inner.masking == Masking::kChanges || inner.masking == Masking::kMakes || inner.masking == Masking::kReads;
  layer.masking = reads_mask || inner.couples_samples ? Masking::kChanges : Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    if (in[0].rank() < 2)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: a sample must have at least 2 dimensions, got [{}]", where, to_text(in[0])));
    const int64_t calls = std::max<int64_t>(wrapped->calls, 1);
    const int64_t most = inner_draws ? kMostSteps / calls : std::min(kMostSteps, kMostCalls / calls);
    if (apart && in[0][0] > most)
      issues.unknown(fmt::format("{}: {} steps of layer '{}', whose steps are not independent (the most are {})", where,
                                 in[0][0], wrapped->name, most));
    const Shape step(std::vector<int64_t>(in[0].dims.begin() + 1, in[0].dims.end()));
    PLIMSOLL_ASSIGN(LayerShape made, wrapped->layer.shape({&step, 1}, issues));
    PLIMSOLL_ASSIGN(LayerShape shape, checked_shape(with_batch(in[0][0], made.output()).dims, where));
    add_weights(*wrapped, made, shape);
    shape.sublayers.push_back(std::move(made));
    return shape;
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    return apart ? each_step(call, *wrapped) : all_steps(call, *wrapped);
  };
  return layer;
}

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

Expression unit_vector(const Expression& x) {
  return x * minimum(call("rsqrt", sum_of_squares(x)), 1 / kEpsilon);
}

Expression product(const Expression& a, const Expression& b, bool transposed = false) {
  return a.apply("matmul", b, {{"transpose_a", false}, {"transpose_b", transposed}});
}

// Returns the kernel [..,C] divided by its largest singular value, as some steps of power iteration estimate it, and
// the vector u [1,C] after them. A kernel of zeros changes neither.
std::pair<ValueId, ValueId> normalized(const Expression& kernel, const Expression& vector_u, int64_t iterations) {
  const int64_t channels = kernel.shape().back();
  const Expression matrix = kernel.reshaped({kernel.shape().elements() / channels, channels});
  Expression u = vector_u, v;
  for (int64_t i = 0; i < iterations; ++i) {
    v = unit_vector(product(u, matrix, true));
    u = unit_vector(product(v, matrix));
  }
  const Expression most = call("abs", matrix).apply("reduce_max", {{"axes", std::vector<int64_t>{0, 1}}});
  const Expression zero = equal(most.reshaped({}), 0);  // u and v are then 0
  const Expression sigma = product(product(v, matrix), u, true).reshaped({});
  return {(kernel / (sigma + zero)).id(), (u + vector_u * zero).id()};
}

// In training, Keras stores the normalised kernel before each call: the update of the step begins at it, and no
// gradient flows through the normalisation.
Layer spectral_normalization(Config& c) {
  constexpr int64_t kMostIterations = 1000;
  const int64_t iterations = c.integer("power_iterations", 1, kMostIterations, 1);
  const auto wrapped = read_wrapped(c, "layer", true);
  const std::string where = c.where();
  Layer layer;
  if (!wrapped) return layer;
  const Layer inner = wrapped->layer;
  check_policy(c);  // under a mixed policy Keras rounds the stored kernel to half precision in every step
  const ActivityPenalty own = read_activity(c);
  layer.activity = {own.l1 + inner.activity.l1, own.l2 + inner.activity.l2};
  layer.float32_weights = inner.float32_weights;
  layer.masking = inner.masking == Masking::kPasses ? Masking::kPasses : Masking::kStops;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(LayerShape made, inner.shape(in, issues));
    if (made.weights.empty() || made.weights[0].name != "kernel")
      return fail(ErrorCode::kBadConfig, fmt::format("{}: layer '{}' has no kernel", where, wrapped->name));
    LayerShape shape;
    shape.outputs = made.outputs;
    const Json initializer{{"class_name", "TruncatedNormal"}, {"config", {{"mean", 0.0}, {"stddev", 0.02}}}};
    WeightConfig vector_u;
    vector_u.initializer = initializer;
    WeightSpec spec = vector_u.spec("vector_u", Shape{1, made.weights[0].shape.back()});
    spec.frozen = true;
    spec.path = vars_path(1);
    add_weights(*wrapped, made, shape);
    shape.weights[0].second_path = vars_path(0);
    shape.weights.insert(shape.weights.begin() + 1, std::move(spec));
    shape.sublayers.push_back(std::move(made));
    return shape;
  };
  layer.replace_weights = [=](GraphBuilder& b, std::span<const ValueId> weights) {
    std::vector<ValueId> made(weights.size(), kNone);
    std::tie(made[0], made[1]) = normalized({b, weights[0]}, {b, weights[1]}, iterations);
    return made;
  };
  layer.build = [=](const BuildCall& call) {
    std::vector<ValueId> weights{call.weights.begin(), call.weights.end()};
    weights.erase(weights.begin() + 1);  // vector_u
    const BuildCall once{
        call.b,         call.batch,  call.precision, call.training, call.trainable && wrapped->trainable,
        call.call,      call.inputs, call.masks,     weights,       call.computed.sublayers[0],
        call.statistics};
    return inner.build(once);
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"SpectralNormalization", spectral_normalization},
    LayerClass{"TimeDistributed", time_distributed},
};

}  // namespace

std::span<const LayerClass> wrapping_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
