// Reads an optimizer as Keras writes it.
#include <fmt/format.h>

#include <limits>

#include "model/config.h"
#include "model/optimizer.h"
#include "model/optimizer_classes.h"

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

// `ema_momentum` and `ema_overwrite_frequency` mean nothing without `use_ema`.
void read_averages(Config& c, Optimizer& optimizer) {
  const double momentum = c.real("ema_momentum", 0.99);
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t frequency = c.integer("ema_overwrite_frequency", 0, kMost, 0);
  if (!c.flag("use_ema", false)) return;
  if (momentum < 0 || momentum > 1)
    c.issues().reject(fmt::format("{}: 'ema_momentum' must lie between 0 and 1, got {}", c.where(), momentum));
  optimizer.ema_momentum = momentum;
  optimizer.ema_overwrite_frequency = frequency;
}

void read_common(Config& c, Optimizer& optimizer) {
  read_learning_rate(c, optimizer);
  read_clipping(c, optimizer);
  read_averages(c, optimizer);
  optimizer.loss_scale_factor = c.real("loss_scale_factor", 1);
  if (!(optimizer.loss_scale_factor > 0))
    c.issues().reject(fmt::format("{}: 'loss_scale_factor' must be above 0", c.where()));
  optimizer.accumulation_steps = c.integer("gradient_accumulation_steps", 1, int64_t{1} << 31, 1);
  c.ignore({"name", "jit_compile", "is_legacy_optimizer"});
}

// Reads the options that only Muon has. Its patterns are regular expressions; those that are plain text are supported.
void read_muon(Config& c, const Json& config, Optimizer& optimizer) {
  // Null switches these off, while a missing key has a default.
  const auto is_null = [&](const char* key) {
    const Json* value = member(config, key);
    return value != nullptr && value->is_null();
  };
  if (is_null("rms_rate")) optimizer.numbers["rms_rate"] = std::numeric_limits<double>::quiet_NaN();
  if (is_null("adam_weight_decay")) optimizer.numbers["adam_weight_decay"] = 0;
  const Json* patterns = c.value("exclude_layers");
  if (patterns == nullptr) return;
  for (const Json& one : patterns->is_array() ? *patterns : Json::array({*patterns})) {
    const std::string text = one.is_string() ? one.get<std::string>() : "";
    if (text.empty() || text.find_first_of("\\^$.|?*+()[]{}") != std::string::npos)
      c.issues().unknown(fmt::format("{}: exclude_layers={}", c.where(), shown(one)));
    optimizer.patterns.push_back(text);
  }
}

void read_options(Config& c, const Json& config, Optimizer& optimizer) {
  const OptimizerClass& kind = *optimizer.kind;
  for (const OptimizerOption& option : kind.options)
    optimizer.numbers[option.name] = option.type == OptimizerOption::Type::kFlag
                                         ? static_cast<double>(c.flag(option.name, option.otherwise != 0))
                                         : c.real(option.name, option.otherwise);
  const Json* decay = member(config, "weight_decay");
  optimizer.weight_decay = decay != nullptr && decay->is_null() ? 0 : c.real("weight_decay", kind.weight_decay);
  c.ignore({"weight_decay"});
  if (kind.name == "Muon") read_muon(c, config, optimizer);
  if (kind.check == nullptr) return;
  if (const std::string trouble = kind.check(optimizer); !trouble.empty())
    c.issues().reject(fmt::format("{}: {}", c.where(), trouble));
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
  optimizer.kind = object.custom ? nullptr : find_optimizer_class(name);
  if (optimizer.kind == nullptr) {
    unsupported.push_back(fmt::format("optimizer {}", object.name.empty() ? shown(config) : object.name));
    return optimizer;
  }
  Issues issues;
  Config c(object.config, fmt::format("optimizer {}", object.name), issues);
  optimizer.learning_rate = optimizer.kind->learning_rate;
  read_common(c, optimizer);
  read_options(c, object.config, optimizer);
  c.finish();
  for (std::string& what : issues.unsupported) unsupported.push_back(std::move(what));
  if (issues.bad) unsupported.push_back(issues.bad->what);
  return optimizer;
}

}  // namespace plimsoll::engine
