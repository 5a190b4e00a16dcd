#include "plimsoll/description.h"

#include <fmt/format.h>

#include "api/builtin.h"
#include "api/config_text.h"
#include "api/layer_graph.h"
#include "api/words.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "formats/json/parse.h"
#include "formats/keras/archive.h"
#include "model/names.h"

namespace plimsoll {

namespace engine {

const DescribedModel& described(const plimsoll::Description& description) {
  return *Access::model(description);
}

}  // namespace engine

namespace {

using engine::Access;
using engine::DescribedModel;
using nlohmann::json;

// Makes a description from a model that Keras wrote. Moves the compile configuration out of the architecture, then
// checks the model.
Result<Description> checked(json config, json compile_config, const std::string& file) {
  if (config.is_object()) {
    if (const auto inside = config.find("compile_config"); inside != config.end()) {
      if (compile_config.is_null()) compile_config = std::move(*inside);
      config.erase(inside);
    }
  }
  if (compile_config.is_object() && compile_config.empty()) compile_config = nullptr;
  if (!compile_config.is_null() && !compile_config.is_object())
    return fail(ErrorCode::kBadConfig, "the compile configuration must be a JSON object");
  DescribedModel model{{std::move(config), std::move(compile_config)}, file, {}};
  PLIMSOLL_TRY(engine::check_architecture(model.description, false));
  return Access::description(std::move(model));
}

json value_of(const ConfigValue& value) {
  return Access::json(value);
}
json value_of(double value) {
  return value;
}
json value_of(const std::vector<Metric>& metrics) {
  json list = json::array();
  for (const Metric& metric : metrics) list.push_back(value_of(metric));
  return list;
}

// Returns an object with one value per name. A name that is given twice becomes broken_json(), which fails with P201.
template <typename Named>
json named_values(const Named& named, const std::string& what) {
  json object = json::object();
  for (const auto& [name, value] : named)
    if (!object.emplace(name, value_of(value)).second)
      object[name] = engine::broken_json(fmt::format("is given twice in {}", what));
  return object;
}

template <typename T>
json per_output(const PerOutput<T>& given, const std::string& what) {
  if (const auto* one = std::get_if<T>(&given.value())) return value_of(*one);
  if (const auto* named = std::get_if<typename PerOutput<T>::Named>(&given.value())) return named_values(*named, what);
  json list = json::array();
  if (const auto* values = std::get_if<std::vector<T>>(&given.value())) {
    for (const T& value : *values) list.push_back(value_of(value));
  }
  return list.empty() ? json() : list;
}

json metrics_json(const Metrics& metrics, const std::string& what) {
  if (const auto* named = std::get_if<Metrics::Named>(&metrics.value())) return named_values(*named, what);
  const json list = value_of(std::get<std::vector<Metric>>(metrics.value()));
  return list.empty() ? json() : list;
}

// Plimsoll skips Keras metrics that it does not support. A name that Keras does not have is an error.
Status check_metric_names(const json& metrics) {
  if (metrics.is_string()) {
    const auto& name = metrics.get_ref<const std::string&>();
    if (engine::in_keras(engine::metric_names(), name)) return {};
    return fail(ErrorCode::kUsage, fmt::format("compile(): Keras has no metric '{}'{}", engine::printable(name),
                                               engine::did_you_mean(engine::metric_names(), name)));
  }
  if (metrics.is_array() || (metrics.is_object() && !metrics.contains("class_name")))
    for (const json& one : metrics) PLIMSOLL_TRY(check_metric_names(one));
  return {};
}

Result<json> compile_config(const CompileOptions& options) {
  json config = engine::json_object({{"optimizer", value_of(options.optimizer)},
                                     {"loss", per_output(options.loss, "loss")},
                                     {"loss_weights", per_output(options.loss_weights, "loss_weights")},
                                     {"metrics", metrics_json(options.metrics, "metrics")},
                                     {"weighted_metrics", metrics_json(options.weighted_metrics, "weighted_metrics")},
                                     {"run_eagerly", false},
                                     {"steps_per_execution", 1},
                                     {"jit_compile", false}});
  PLIMSOLL_TRY(engine::check_json(config, "compile()"));
  if (config["loss"].is_null())
    return fail(Error{ErrorCode::kUsage,
                      "compile(): the loss is missing",
                      {},
                      {".loss = losses::SparseCategoricalCrossentropy(), or another one"}});
  PLIMSOLL_TRY(check_metric_names(config["metrics"]));
  PLIMSOLL_TRY(check_metric_names(config["weighted_metrics"]));
  return config;
}

Error unknown_builtin(const std::string& name) {
  std::vector<std::string> names;
  for (const engine::BuiltinModel& model : engine::builtin_models()) names.push_back(model.name);
  Error error{ErrorCode::kUsage, fmt::format("unknown built-in model '{}'", engine::printable(name)), {}, {}};
  error.fact(fmt::format("built-in models: {}", fmt::join(names, ", ")));
  if (const std::string meant = engine::suggestion(name, names); !meant.empty()) error.remedy(meant);
  return error;
}

}  // namespace

Result<Description> Description::from_json(std::string_view architecture, std::string_view compile_config) {
  return engine::at_border([&]() -> Result<Description> {
    PLIMSOLL_ASSIGN(json config, engine::parse_json(architecture, "the architecture"));
    json compiled;
    if (!compile_config.empty()) {
      PLIMSOLL_ASSIGN(compiled, engine::parse_json(compile_config, "the compile configuration"));
    }
    return checked(std::move(config), std::move(compiled), "");
  });
}

Result<Description> Description::load(const std::string& path) {
  return engine::at_border([&]() -> Result<Description> {
    PLIMSOLL_ASSIGN(engine::KerasArchive archive, engine::open_keras(path));
    return checked(std::move(archive.config), json(), archive.tensors() != nullptr ? path : "");
  });
}

Result<Description> Description::builtin(const std::string& name) {
  return engine::at_border([&]() -> Result<Description> {
    auto model = engine::builtin_model(name);
    if (!model) return fail(unknown_builtin(name));
    return Access::description({std::move(*model), "", {}});
  });
}

Result<Description> Description::compile(const CompileOptions& options) const {
  return engine::at_border([&]() -> Result<Description> {
    DescribedModel made = *model_;
    PLIMSOLL_ASSIGN(made.description.compile_config, compile_config(options));
    PLIMSOLL_TRY(engine::check_architecture(made.description, true));
    return Access::description(std::move(made));
  });
}

std::string Description::name() const {
  const json& config = model_->description.config;
  return config.contains("config") ? config["config"].value("name", "") : "";
}

std::string Description::to_json() const {
  return engine::shown_json(model_->description.config);
}

std::string Description::compile_json() const {
  return engine::shown_json(model_->description.compile_config);
}

}  // namespace plimsoll
