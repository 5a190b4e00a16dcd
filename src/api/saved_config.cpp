#include "api/saved_config.h"

#include "base/json.h"
#include "model/config.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kWrapper = "LossScaleOptimizer";

bool is_wrapper(const nlohmann::json& optimizer) {
  return keras_object(optimizer).name == kWrapper;
}

nlohmann::json named_object(const std::string& name, const nlohmann::json& config) {
  return json_object(
      {{"module", "keras.optimizers"}, {"class_name", name}, {"config", config}, {"registered_name", nullptr}});
}

// An optimizer may be a lower-case name, but inside another optimizer it must be an object.
nlohmann::json as_object(const nlohmann::json& optimizer) {
  if (optimizer.is_object() && optimizer.contains("module")) return optimizer;
  const KerasObject object = keras_object(optimizer);
  for (const char* name : {"SGD", "Adam", "AdamW"})
    if (object.name == lower_case(name)) return named_object(name, object.config);
  return named_object(object.name, object.config);
}

// If Keras compiles a model under mixed_float16, it wraps the optimizer but writes only the inner one to the file. A
// file without changes stays like that. In all other files the wrapper is written out, so that a reader knows where its
// state belongs.
nlohmann::json wrapped(const nlohmann::json& optimizer, const LossScale& scale) {
  return named_object(kWrapper, json_object({{"name", "loss_scale_optimizer"},
                                             {"inner_optimizer", as_object(optimizer)},
                                             {"initial_scale", scale.initial},
                                             {"dynamic_growth_steps", scale.growth_steps}}));
}

// Parses the value of a flag: a Keras name or a JSON object.
nlohmann::json parsed(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() ? json : nlohmann::json(text);
}

}  // namespace

bool any_override(const ModelOptions& overrides) {
  return overrides.optimizer || overrides.loss || !overrides.metrics.empty() || overrides.learning_rate;
}

namespace {

// Metrics from flags are only for this run. A compiled file keeps its own metrics, including those that Plimsoll does
// not compute.
nlohmann::json written_metrics(const ModelOptions& overrides) {
  if (overrides.metrics.empty() || overrides.metrics.front() == kNoMetrics) return nullptr;
  nlohmann::json metrics = nlohmann::json::array();
  for (const std::string& name : overrides.metrics) metrics.push_back(parsed(name));
  return metrics;
}

}  // namespace

std::string saved_config(const nlohmann::json& config, std::string text, const ModelOptions& overrides,
                         const Model& model, bool wrapped_state) {
  const nlohmann::json* compiled = member(config, "compile_config");
  const nlohmann::json* optimizer = compiled != nullptr ? member(*compiled, "optimizer") : nullptr;
  const bool scaled = wrapped_state || model.optimizer().loss_scale;
  const bool says_so = optimizer != nullptr && is_wrapper(*optimizer);
  const bool was_compiled = compiled != nullptr && compiled->is_object();
  const bool changes =
      overrides.optimizer || overrides.loss || overrides.learning_rate || (!was_compiled && !overrides.metrics.empty());
  if (!changes && (!scaled || says_so || wrapped_state)) return text;
  nlohmann::json changed = config;
  nlohmann::json& compile = changed["compile_config"];
  if (!compile.is_object())
    compile = json_object({{"loss_weights", nullptr},
                           {"metrics", written_metrics(overrides)},
                           {"weighted_metrics", nullptr},
                           {"run_eagerly", false},
                           {"steps_per_execution", 1},
                           {"jit_compile", false}});
  if (overrides.optimizer) compile["optimizer"] = parsed(*overrides.optimizer);
  if (overrides.loss) compile["loss"] = parsed(*overrides.loss);
  nlohmann::json& chosen = compile["optimizer"];
  if (scaled && !is_wrapper(chosen)) chosen = wrapped(chosen, model.optimizer().loss_scale.value_or(LossScale{}));
  nlohmann::json& inner = is_wrapper(chosen) ? chosen["config"]["inner_optimizer"] : chosen;
  if (overrides.learning_rate && inner.is_object()) inner["config"]["learning_rate"] = *overrides.learning_rate;
  return changed.dump();
}

}  // namespace plimsoll::engine
