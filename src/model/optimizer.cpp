#include "model/optimizer.h"

#include <fmt/format.h>

#include "model/config.h"
#include "model/values.h"

namespace plimsoll::engine {
namespace {

void read_learning_rate(Config& c, Optimizer& optimizer) {
  const Json* value = c.value("learning_rate");
  if (!value) return;
  if (!value->is_object()) {
    optimizer.learning_rate = c.real("learning_rate", optimizer.learning_rate);
    return;
  }
  if (const std::string trouble = check_schedule(*value); !trouble.empty())
    c.issues().unknown(fmt::format("{}: learning_rate: {}", c.where(), trouble));
  else
    optimizer.schedule = *value;
}

// Keras ignores limits of zero and rejects more than one limit.
void read_clipping(Config& c, Optimizer& optimizer) {
  const auto limit = [&](const char* key) -> std::optional<double> {
    const auto value = c.optional_real(key);
    return value && *value > 0 ? value : std::nullopt;
  };
  optimizer.clipnorm = limit("clipnorm");
  optimizer.global_clipnorm = limit("global_clipnorm");
  optimizer.clipvalue = limit("clipvalue");
  if (optimizer.clipnorm.has_value() + optimizer.global_clipnorm.has_value() + optimizer.clipvalue.has_value() > 1)
    c.issues().reject(c.where() + ": only one of clipnorm, global_clipnorm and clipvalue may be set");
}

void read_common(Config& c, Optimizer& optimizer) {
  read_learning_rate(c, optimizer);
  read_clipping(c, optimizer);
  optimizer.weight_decay = c.real("weight_decay", optimizer.weight_decay);
  c.only("use_ema", {false});
  c.only("loss_scale_factor");
  // In Keras its iterations count batches, and its sums continue across epochs. --gradient-accumulation-steps does it
  // exactly.
  c.only("gradient_accumulation_steps", {1});
  // Names, and keys that matter only with use_ema.
  c.ignore({"name", "ema_momentum", "ema_overwrite_frequency", "jit_compile", "is_legacy_optimizer"});
}

}  // namespace

namespace {

// Keras wraps the optimizer of a mixed_float16 model in a LossScaleOptimizer.
Optimizer parse_loss_scale(const KerasObject& object, std::vector<std::string>& unsupported) {
  Issues issues;
  Config c(object.config, fmt::format("optimizer {}", object.name), issues);
  const Json* inner = c.value("inner_optimizer");
  LossScale scale;
  scale.initial = c.real("initial_scale", scale.initial);
  scale.growth_steps = c.integer("dynamic_growth_steps", 1, int64_t{1} << 31, scale.growth_steps);
  if (!(scale.initial > 0))
    issues.reject(fmt::format("{}: 'initial_scale' must be above 0, got {}", c.where(), scale.initial));
  // Older versions of Keras also write an optimizer's usual keys, which have no effect here.
  for (const char* key :
       {"weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor", "gradient_accumulation_steps"})
    c.only(key);
  c.only("use_ema", {false});
  c.ignore({"name", "learning_rate", "ema_momentum", "ema_overwrite_frequency", "jit_compile"});
  c.finish();
  for (std::string& what : issues.unsupported) unsupported.push_back(std::move(what));
  if (issues.bad) unsupported.push_back(issues.bad->what);
  Optimizer optimizer;
  if (inner == nullptr)
    unsupported.push_back(c.where() + ": 'inner_optimizer' is missing");
  else
    optimizer = parse_optimizer(*inner, unsupported);
  if (optimizer.loss_scale) unsupported.push_back(c.where() + " inside another LossScaleOptimizer");
  optimizer.loss_scale = scale;
  return optimizer;
}

}  // namespace

Optimizer parse_optimizer(const Json& config, std::vector<std::string>& unsupported) {
  const KerasObject object = keras_object(config);
  const std::string name = lower_case(object.name);
  if (!object.custom && name == "lossscaleoptimizer") return parse_loss_scale(object, unsupported);
  Optimizer optimizer;
  Issues issues;
  Config c(object.config, fmt::format("optimizer {}", object.name), issues);
  if (object.custom || (name != "sgd" && name != "adam" && name != "adamw")) {
    unsupported.push_back(fmt::format("optimizer {}", object.name.empty() ? shown(config) : object.name));
    return optimizer;
  }
  optimizer.kind = name == "sgd" ? Optimizer::Kind::kSgd : Optimizer::Kind::kAdam;
  optimizer.learning_rate = name == "sgd" ? 0.01 : 0.001;
  if (name == "adamw") optimizer.weight_decay = 0.004;
  read_common(c, optimizer);
  if (optimizer.kind == Optimizer::Kind::kSgd) {
    optimizer.momentum = c.real("momentum", 0);
    optimizer.nesterov = c.flag("nesterov", false);
    if (optimizer.momentum < 0 || optimizer.momentum > 1)
      issues.reject(fmt::format("{}: 'momentum' must lie between 0 and 1, got {}", c.where(), optimizer.momentum));
  } else {
    optimizer.beta_1 = c.real("beta_1", 0.9);
    optimizer.beta_2 = c.real("beta_2", 0.999);
    optimizer.epsilon = c.real("epsilon", 1e-7);
    c.only("amsgrad", {false});
  }
  c.finish();
  for (std::string& what : issues.unsupported) unsupported.push_back(std::move(what));
  if (issues.bad) unsupported.push_back(issues.bad->what);
  return optimizer;
}

std::vector<std::string> state_names(const Optimizer& optimizer) {
  if (optimizer.kind == Optimizer::Kind::kAdam) return {"m", "v"};
  if (optimizer.momentum != 0) return {"momentum"};
  return {};
}

namespace {

// Returns the gradients clipped as in Keras, all computed before any weight changes. kNone stays kNone.
std::vector<ValueId> clipped(GraphBuilder& b, const Optimizer& optimizer, const std::vector<TrainedWeight>& weights) {
  const auto category = b.in_category(Category::kGradients);
  std::vector<ValueId> gradients;
  for (const TrainedWeight& w : weights) gradients.push_back(w.gradient);
  const auto each = [&](auto change) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i] == kNone) continue;
      const auto layer = b.in_layer(b.graph().value(weights[i].weight).layer);
      gradients[i] = change(gradients[i]);
    }
  };
  const auto factor = [&](ValueId squared, double limit) {
    return b.add1("clip_factor", {squared}, {{"limit", limit}});
  };
  if (optimizer.clipnorm) {
    each([&](ValueId g) { return b.add1("scale", {g, factor(b.add1("squared_norm", {g}), *optimizer.clipnorm)}); });
  } else if (optimizer.global_clipnorm) {
    ValueId total = kNone;
    each([&](ValueId g) {
      const ValueId squared = b.add1("squared_norm", {g});
      total = total == kNone ? squared : b.add1("add", {total, squared});
      return g;
    });
    if (total == kNone) return gradients;
    const ValueId shared = factor(total, *optimizer.global_clipnorm);
    each([&](ValueId g) { return b.add1("scale", {g, shared}); });
  } else if (optimizer.clipvalue) {
    each([&](ValueId g) { return b.add1("clip_value", {g}, {{"limit", *optimizer.clipvalue}}); });
  }
  return gradients;
}

}  // namespace

ValueId loss_gradient(GraphBuilder& b, const Optimizer& optimizer, DType dtype) {
  if (!optimizer.loss_scale) return kNone;
  const auto layer = b.in_layer("");
  return b.persistent(kLossScale, {dtype, Shape{}}, Category::kOptimizer);
}

namespace {

// If a gradient was cast from half precision, returns the half-precision value: the same elements are finite, and it
// has fewer bytes to read.
ValueId before_cast(const Graph& graph, ValueId gradient) {
  const NodeId producer = graph.value(gradient).producer;
  if (producer == kNone || graph.node(producer).op != "cast") return gradient;
  const ValueId from = graph.node(producer).inputs[0];
  return is_half(graph.type(from).dtype) ? from : gradient;
}

// Protects updates against overflow: divides the gradients by the loss scale and counts their elements that are not
// finite.
class Guard {
 public:
  Guard(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight>& weights)
      : b_(b), scheduled_(!optimizer.schedule.is_null()) {
    std::vector<ValueId> looked_at;
    for (const TrainedWeight& w : weights)
      if (w.gradient != kNone) looked_at.push_back(before_cast(b.graph(), w.gradient));
    if (!optimizer.loss_scale || looked_at.empty()) return;
    growth_steps_ = optimizer.loss_scale->growth_steps;
    scale_ = loss_gradient(b, optimizer, b.graph().type(weights.front().weight).dtype);
    const auto category = b.in_category(Category::kGradients);
    const auto no_layer = b.in_layer("");
    skipped_ = b.persistent(kSkippedUpdates, {DType::kInt64, Shape{}}, Category::kOptimizer);
    bad_ = b.add1("count_not_finite", std::move(looked_at));
    for (TrainedWeight& w : weights) {
      if (w.gradient == kNone) continue;
      const auto layer = b.in_layer(b.graph().value(w.weight).layer);
      w.gradient = b.add1("unscale", {w.gradient, scale_});
    }
  }

  // Returns the number of this update. Skipped updates are not counted.
  ValueId iteration() {
    const auto no_layer = b_.in_layer("");
    const ValueId iteration = step_scalar(b_, StepScalar::kIteration, DType::kInt64);
    if (bad_ == kNone) return iteration;
    if (applied_ == kNone) applied_ = b_.add1("applied_updates", {iteration, skipped_});
    return applied_;
  }
  // Returns the schedule's learning rate for this update.
  ValueId rate(DType dtype) {
    const auto no_layer = b_.in_layer("");
    const ValueId rate = step_scalar(b_, StepScalar::kLearningRate, dtype);
    if (bad_ == kNone || !scheduled_) return rate;
    if (rate_ != kNone) return rate_;
    const ValueId other = step_scalar(b_, StepScalar::kRateIfSkipped, b_.graph().type(rate).dtype);
    const ValueId known = step_scalar(b_, StepScalar::kKnownSkips, DType::kInt64);
    return rate_ = b_.add1("scheduled_rate", {rate, other, skipped_, known});
  }
  void update(ValueId persistent, ValueId value) const {
    b_.update(persistent, bad_ == kNone ? value : b_.add1("keep_if", {value, persistent, bad_}));
  }
  // Must come last: nothing may read the scale or the counts afterwards.
  void finish() const {
    if (bad_ == kNone) return;
    const auto layer = b_.in_layer("");
    const ValueId steps = b_.persistent(kLossScaleSteps, {DType::kInt64, Shape{}}, Category::kOptimizer);
    const auto next = b_.add("loss_scale", {scale_, steps, skipped_, bad_}, {{"growth_steps", growth_steps_}});
    const ValueId kept[] = {scale_, steps, skipped_};
    for (size_t i = 0; i < 3; ++i) b_.update(kept[i], next[i]);
  }

 private:
  GraphBuilder& b_;
  bool scheduled_;
  int64_t growth_steps_ = 0;
  ValueId scale_ = kNone, bad_ = kNone, skipped_ = kNone, applied_ = kNone, rate_ = kNone;
};

}  // namespace

void append_updates(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight> weights) {
  const auto update = b.in_stage(Stage::kUpdate, Category::kTemporaries);
  Guard guard(b, optimizer, weights);
  const std::vector<ValueId> gradients = clipped(b, optimizer, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const ValueId weight = weights[i].weight;
    if (gradients[i] == kNone) continue;
    const Value w = b.graph().value(weight);
    const ValueId rate = guard.rate(w.type.dtype);
    const auto layer = b.in_layer(w.layer);
    std::vector<ValueId> state;
    for (const std::string& name : state_names(optimizer))
      state.push_back(b.persistent(fmt::format("{}/{}", w.name, name), w.type, Category::kOptimizer));
    std::vector<ValueId> outputs;
    if (optimizer.kind == Optimizer::Kind::kAdam) {
      outputs = b.add("adam", {weight, gradients[i], state[0], state[1], rate, guard.iteration()},
                      {{"beta_1", optimizer.beta_1},
                       {"beta_2", optimizer.beta_2},
                       {"epsilon", optimizer.epsilon},
                       {"weight_decay", optimizer.weight_decay}});
    } else {
      std::vector<ValueId> inputs{weight, gradients[i], rate};
      inputs.insert(inputs.end(), state.begin(), state.end());
      outputs = b.add("sgd", std::move(inputs),
                      {{"momentum", optimizer.momentum},
                       {"nesterov", optimizer.nesterov},
                       {"weight_decay", optimizer.weight_decay}});
    }
    guard.update(weight, outputs[0]);
    for (size_t s = 0; s < state.size(); ++s) guard.update(state[s], outputs[s + 1]);
  }
  guard.finish();
}

}  // namespace plimsoll::engine
