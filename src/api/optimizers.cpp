#include "plimsoll/optimizers.h"

#include "api/config_json.h"
#include "base/json.h"
#include "formats/keras/layer_paths.h"

namespace plimsoll {
namespace {

using engine::Access;
using engine::json_object;
using engine::optional_json;
using nlohmann::json;

Optimizer optimizer(const std::string& class_name, json config) {
  return Access::make<Optimizer>(engine::keras_json("keras.optimizers", class_name, std::move(config)));
}

// Makes an optimizer with the arguments that all optimizers have. `options` is the options struct of any optimizer.
template <typename Options>
Optimizer optimizer_of(const char* class_name, const Options& options, json config) {
  config["name"] = options.name.empty() ? engine::keras_snake_case(class_name) : options.name;
  config["learning_rate"] = Access::json(options.learning_rate);
  config["weight_decay"] = optional_json(options.weight_decay);
  config["clipnorm"] = optional_json(options.clipnorm);
  config["global_clipnorm"] = optional_json(options.global_clipnorm);
  config["clipvalue"] = optional_json(options.clipvalue);
  config["use_ema"] = false;
  config["ema_momentum"] = 0.99;
  config["ema_overwrite_frequency"] = nullptr;
  config["loss_scale_factor"] = nullptr;
  config["gradient_accumulation_steps"] = nullptr;
  return optimizer(class_name, std::move(config));
}

template <typename Options>
Optimizer adam(const char* class_name, const Options& options) {
  return optimizer_of(
      class_name, options,
      json_object(
          {{"beta_1", options.beta_1}, {"beta_2", options.beta_2}, {"epsilon", options.epsilon}, {"amsgrad", false}}));
}

Schedule schedule(const char* class_name, json config) {
  return Access::make<Schedule>(engine::keras_json("keras.optimizers.schedules", class_name, std::move(config)));
}

Schedule decay(const char* class_name, double initial, int64_t steps, double rate, bool staircase) {
  return schedule(class_name, json_object({{"initial_learning_rate", initial},
                                           {"decay_steps", steps},
                                           {"decay_rate", rate},
                                           {"staircase", staircase}}));
}

}  // namespace

LearningRate::LearningRate(double rate)
    : ConfigValue(std::make_shared<const engine::ConfigJson>(engine::ConfigJson{rate})) {}

namespace schedules {

Schedule ExponentialDecay(double initial_learning_rate, int64_t decay_steps, double decay_rate,
                          const DecayOptions& options) {
  return decay("ExponentialDecay", initial_learning_rate, decay_steps, decay_rate, options.staircase);
}
Schedule InverseTimeDecay(double initial_learning_rate, int64_t decay_steps, double decay_rate,
                          const DecayOptions& options) {
  return decay("InverseTimeDecay", initial_learning_rate, decay_steps, decay_rate, options.staircase);
}
Schedule PiecewiseConstantDecay(const std::vector<int64_t>& boundaries, const std::vector<double>& values) {
  return schedule("PiecewiseConstantDecay", json_object({{"boundaries", boundaries}, {"values", values}}));
}
Schedule PolynomialDecay(double initial_learning_rate, int64_t decay_steps, const PolynomialDecayOptions& options) {
  return schedule("PolynomialDecay", json_object({{"initial_learning_rate", initial_learning_rate},
                                                  {"decay_steps", decay_steps},
                                                  {"end_learning_rate", options.end_learning_rate},
                                                  {"power", options.power},
                                                  {"cycle", options.cycle}}));
}
Schedule CosineDecay(double initial_learning_rate, int64_t decay_steps, const CosineDecayOptions& options) {
  return schedule("CosineDecay", json_object({{"initial_learning_rate", initial_learning_rate},
                                              {"decay_steps", decay_steps},
                                              {"alpha", options.alpha},
                                              {"warmup_target", optional_json(options.warmup_target)},
                                              {"warmup_steps", options.warmup_steps}}));
}
Schedule CosineDecayRestarts(double initial_learning_rate, int64_t first_decay_steps,
                             const CosineDecayRestartsOptions& options) {
  return schedule("CosineDecayRestarts", json_object({{"initial_learning_rate", initial_learning_rate},
                                                      {"first_decay_steps", first_decay_steps},
                                                      {"t_mul", options.t_mul},
                                                      {"m_mul", options.m_mul},
                                                      {"alpha", options.alpha}}));
}

}  // namespace schedules

namespace optimizers {

Optimizer SGD(const SGDOptions& options) {
  return optimizer_of("SGD", options, json_object({{"momentum", options.momentum}, {"nesterov", options.nesterov}}));
}
Optimizer SGD(const LearningRate& learning_rate) {
  return SGD(SGDOptions{.learning_rate = learning_rate});
}
Optimizer Adam(const AdamOptions& options) {
  return adam("Adam", options);
}
Optimizer Adam(const LearningRate& learning_rate) {
  return Adam(AdamOptions{.learning_rate = learning_rate});
}
Optimizer AdamW(const AdamWOptions& options) {
  return adam("AdamW", options);
}
Optimizer AdamW(const LearningRate& learning_rate) {
  return AdamW(AdamWOptions{.learning_rate = learning_rate});
}
Optimizer Custom(const std::string& class_name, const std::string& config_json) {
  return optimizer(class_name, engine::parsed_json(config_json));
}

}  // namespace optimizers
}  // namespace plimsoll
