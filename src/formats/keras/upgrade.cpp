#include "formats/keras/upgrade.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "formats/keras/upgrade_functions.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

Json* find(Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() ? &*found : nullptr;
}

std::string text(Json& object, const char* key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

bool is_object(Json& value) {
  return find(value, "class_name") != nullptr && find(value, "config") != nullptr;
}

bool any_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_model(const std::string& name) {
  return any_of(name, {"Sequential", "Functional", "Model"});
}

// The modules that Keras 2.12 to 2.15 and tf_keras write into .keras files, and that Keras 3 does not have.
bool is_keras2_module(const std::string& module) {
  return module.starts_with("tf_keras.") || module.starts_with("keras.src.engine");
}

// Gives an object its module. The classes of Keras 2 may have the prefix "Custom>", those of users "Package>".
void name_module(Json& object, const char* module) {
  std::string name = text(object, "class_name");
  constexpr std::string_view kOwn = "Custom>";
  if (name.starts_with(kOwn)) {
    name = name.substr(kOwn.size());
    object["class_name"] = name;
  }
  if (is_keras2_module(text(object, "module"))) object.erase("module");
  if (find(object, "module") != nullptr) return;
  const bool custom = name.find('>') != std::string::npos;
  object["module"] = custom ? Json() : Json(module);
  object["registered_name"] = custom ? Json(name) : Json();
}

void rename(Json& config, const char* from, const char* to) {
  Json* old = find(config, from);
  if (old == nullptr) return;
  if (find(config, to) == nullptr) config[to] = *old;
  config.erase(from);
}

// Removes a key whose value changes nothing. Any other value stays, and is listed as not supported.
void drop(Json& config, const char* key, std::initializer_list<Json> meaningless) {
  const Json* value = find(config, key);
  if (value != nullptr && std::find(meaningless.begin(), meaningless.end(), *value) != meaningless.end())
    config.erase(key);
}

void upgrade_policy(Json& config) {
  Json* policy = find(config, "dtype");
  if (policy == nullptr || !is_object(*policy)) return;
  if (any_of(text(*policy, "class_name"), {"Policy", "PolicyV1"})) {
    const std::string name = text((*policy)["config"], "name");
    *policy = json_object({{"module", "keras"},
                           {"class_name", "DTypePolicy"},
                           {"config", json_object({{"name", name}})},
                           {"registered_name", nullptr}});
  }
}

// The options that Keras 3 renamed or dropped.
void upgrade_options(const std::string& name, Json& layer) {
  Json& config = layer["config"];
  upgrade_policy(config);
  // Like Keras 3, for all layers: Keras 2 writes the axis of a BatchNormalization as [3].
  if (Json* axis = find(config, "axis"); axis != nullptr && axis->is_array() && axis->size() == 1)
    *axis = Json(axis->at(0));
  for (const char* key : {"batch_input_shape", "input_dtype", "input_shape", "input_length"}) config.erase(key);
  drop(config, "time_major", {false});
  drop(config, "rng_type", {"stateful"});
  if (name == "LeakyReLU") rename(config, "alpha", "negative_slope");
  if (name == "ThresholdedReLU") {
    layer["class_name"] = "ReLU";
    rename(config, "theta", "threshold");
  }
  if (name.starts_with("BatchNormalization")) {
    drop(config, "fused", {nullptr, true, false});
    drop(config, "virtual_batch_size", {nullptr});
    drop(config, "adjustment", {nullptr});
    drop(config, "renorm", {false});
  }
  const bool depthwise = name.starts_with("DepthwiseConv"), separable = name.starts_with("SeparableConv");
  if (depthwise || separable) {
    // Keras 2 writes the options of the ordinary convolution too; nothing reads them.
    for (const char* key : {"kernel_initializer", "kernel_regularizer", "kernel_constraint"}) config.erase(key);
    drop(config, "groups", {1});
    if (depthwise) config.erase("filters");
  }
  if (name.ends_with("Transpose")) drop(config, "groups", {1});
  if (any_of(name, {"LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell"}))
    config.erase("implementation");
  if (name == "MultiHeadAttention") {
    for (const char* key : {"query_shape", "key_shape", "value_shape"}) config.erase(key);
    drop(config, "softmax_robust_masking", {false});
  }
}

void upgrade_layer(Json& layer);

void upgrade_sequential(Json& object) {
  Json& config = object["config"];
  if (config.is_array()) {  // up to Keras 2.2.4
    Json layers = std::move(config);
    config = json_object({{"name", "sequential"}, {"layers", std::move(layers)}});
  }
  Json* layers = find(config, "layers");
  if (layers == nullptr || !layers->is_array() || layers->empty()) return;
  Json& first = layers->front();
  Json* inner = find(first, "config");
  const Json* shape = inner != nullptr ? find(*inner, "batch_input_shape") : nullptr;
  if (shape == nullptr || text(first, "class_name") == "InputLayer") return;
  // The first layer holds the shape of the input, and there is no InputLayer.
  const Json* dtype = find(*inner, "dtype");
  Json input =
      json_object({{"module", "keras.layers"},
                   {"class_name", "InputLayer"},
                   {"config", json_object({{"batch_shape", *shape},
                                           {"dtype", dtype != nullptr && dtype->is_string() ? *dtype : Json("float32")},
                                           {"name", text(*inner, "name") + "_input"}})},
                   {"registered_name", nullptr}});
  layers->insert(layers->begin(), std::move(input));
}

// Keras 2 gives a nested model that begins with an InputLayer a call of its own, its number 0. Keras 3 counts the calls
// in inbound_nodes from 0, and only those of a Functional model in input_layers and output_layers from 1.
void upgrade_nodes(Json& config) {
  Json* layers = find(config, "layers");
  if (layers == nullptr || !layers->is_array()) return;
  std::map<std::string, bool> shifted;  // nested models; whether they are Sequential
  for (Json& layer : *layers) {
    const std::string name = text(layer, "class_name");
    Json* inner = find(layer, "config");
    Json* own = is_model(name) && inner != nullptr ? find(*inner, "layers") : nullptr;
    if (own == nullptr || !own->is_array() || own->empty()) continue;
    if (name != "Sequential" || text(own->front(), "class_name") == "InputLayer")
      shifted.emplace(text(layer, "name"), name == "Sequential");
  }
  const auto shift = [&](Json& tensor, bool in_ports) {
    if (!tensor.is_array() || tensor.size() < 3 || !tensor[0].is_string() || !tensor[1].is_number_integer()) return;
    const auto found = shifted.find(tensor[0].get<std::string>());
    if (found == shifted.end() || (in_ports && !found->second)) return;
    if (const auto node = tensor[1].get<int64_t>(); node > 0) tensor[1] = node - 1;
  };
  // A tensor may hold others in its named arguments.
  const std::function<void(Json&)> shift_all = [&](Json& value) {
    if (is_old_tensor(value)) shift(value, false);
    if (value.is_structured())
      for (Json& one : value) shift_all(one);
  };
  for (Json& layer : *layers) {
    Json* nodes = find(layer, "inbound_nodes");
    if (nodes == nullptr || !nodes->is_array()) continue;
    for (Json& node : *nodes) shift_all(node);
  }
  for (const char* key : {"input_layers", "output_layers"}) {
    Json* ports = find(config, key);
    if (ports == nullptr || !ports->is_array()) continue;
    shift(*ports, true);
    for (Json& port : *ports) shift(port, true);
  }
}

bool has_lists_as_nodes(Json& config) {
  Json* layers = find(config, "layers");
  if (layers == nullptr || !layers->is_array()) return false;
  for (Json& layer : *layers)
    if (const Json* nodes = find(layer, "inbound_nodes"); nodes != nullptr && nodes->is_array() && !nodes->empty())
      return nodes->front().is_array();
  return false;
}

void upgrade_contents(Json& object) {
  if (text(object, "class_name") == "Model") object["class_name"] = "Functional";
  const bool sequential = text(object, "class_name") == "Sequential";
  if (sequential) upgrade_sequential(object);
  Json* config = find(object, "config");
  if (config == nullptr || !config->is_object()) return;
  if (!sequential && has_lists_as_nodes(*config)) {
    upgrade_nodes(*config);
    upgrade_functions(*config);
    upgrade_named_tensors(*config);
  }
  if (Json* layers = find(*config, "layers"); layers != nullptr && layers->is_array())
    for (Json& layer : *layers) upgrade_layer(layer);
  upgrade_policy(*config);
}

void upgrade_layer(Json& layer) {  // NOLINT(misc-no-recursion): the depth of JSON is limited
  if (!is_object(layer)) return;
  std::string name = text(layer, "class_name");
  if (is_model(name)) {
    upgrade_contents(layer);
    return name_module(layer, text(layer, "class_name") == "Sequential" ? "keras" : "keras.src.models.functional");
  }
  name_module(layer, "keras.layers");
  layer.erase("build_config");  // Keras 3 builds a MultiHeadAttention from other shapes
  name = text(layer, "class_name");
  Json& config = layer["config"];
  if (!config.is_object()) return;
  if (name == "InputLayer") {
    rename(config, "batch_input_shape", "batch_shape");
    drop(config, "type_spec", {nullptr});
    return;
  }
  upgrade_options(name, layer);
  for (const char* key : {"layer", "forward_layer", "backward_layer", "cell"})
    if (Json* inner = find(config, key)) upgrade_layer(*inner);
  if (Json* cells = find(config, "cells"); cells != nullptr && cells->is_array())
    for (Json& cell : *cells) upgrade_layer(cell);
}

void upgrade_optimizer(Json& optimizer) {  // NOLINT(misc-no-recursion)
  if (!is_object(optimizer)) return;
  name_module(optimizer, "keras.optimizers");
  Json& config = optimizer["config"];
  if (!config.is_object()) return;
  rename(config, "lr", "learning_rate");
  for (const char* key : {"is_legacy_optimizer", "jit_compile", "dynamic", "schedule_decay"}) config.erase(key);
  drop(config, "ema_overwrite_frequency", {nullptr});
  Json* rate = find(config, "learning_rate");
  if (rate != nullptr && is_object(*rate)) name_module(*rate, "keras.optimizers.schedules");
  // Up to Keras 2.10: rate / (1 + decay * iteration).
  if (const Json* decay = find(config, "decay")) {
    if (decay->is_number() && decay->get<double>() != 0 && rate != nullptr && rate->is_number())
      *rate = json_object({{"module", "keras.optimizers.schedules"},
                           {"class_name", "InverseTimeDecay"},
                           {"config", json_object({{"initial_learning_rate", *rate},
                                                   {"decay_steps", 1},
                                                   {"decay_rate", *decay},
                                                   {"staircase", false},
                                                   {"name", "InverseTimeDecay"}})},
                           {"registered_name", nullptr}});
    config.erase("decay");
  }
  if (Json* inner = find(config, "inner_optimizer")) upgrade_optimizer(*inner);
}

void upgrade_loss(Json& loss) {  // NOLINT(misc-no-recursion)
  if (is_object(loss)) {
    name_module(loss, "keras.losses");
    Json& config = loss["config"];
    if (text(config, "reduction") == "auto") config["reduction"] = "sum_over_batch_size";
    if (config.is_object() && text(loss, "class_name") != "LossFunctionWrapper") config.erase("fn");
  } else if (loss.is_structured()) {
    for (Json& one : loss) upgrade_loss(one);
  }
}

// "sparse_categorical_accuracy" -> "SparseCategoricalAccuracy"
std::string camel_case(const std::string& words) {
  std::string name;
  bool start = true;
  for (const char c : words) {
    if (c == '_')
      start = true;
    else
      name += std::exchange(start, false) && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

void upgrade_metric(Json& metric) {  // NOLINT(misc-no-recursion)
  if (is_object(metric)) {
    Json& config = metric["config"];
    const std::string function = text(config, "fn"), name = text(config, "name");
    if (any_of(text(metric, "class_name"), {"MeanMetricWrapper", "SumOverBatchSizeMetricWrapper"}) &&
        !function.empty()) {
      if (any_of(name, {"accuracy", "acc"}) && function.ends_with("accuracy")) {
        metric = Json(name);
        return;
      }
      metric["class_name"] = camel_case(function);
      config.erase("fn");
    }
    name_module(metric, "keras.metrics");
  } else if (metric.is_structured()) {
    for (Json& one : metric) upgrade_metric(one);
  }
}

}  // namespace

void remove_type_marks(Json& value) {  // NOLINT(misc-no-recursion): the depth of JSON is limited
  if (value.is_object() && any_of(text(value, "class_name"), {"__tuple__", "TensorShape"})) {
    if (Json* items = find(value, "items"); items != nullptr && items->is_array()) {
      Json list = std::move(*items);
      value = std::move(list);
    }
  }
  if (value.is_structured())
    for (Json& one : value) remove_type_marks(one);
}

bool is_legacy_config(const Json& model) {
  if (!model.is_object() || !model.contains("class_name") || !model.contains("config")) return false;
  const auto module = model.find("module");
  return module == model.end() || (module->is_string() && is_keras2_module(module->get<std::string>()));
}

Json upgrade_model(Json model) {
  remove_type_marks(model);
  upgrade_layer(model);
  return model;
}

Json upgrade_training(const Json& training) {
  if (!training.is_object()) return nullptr;
  Json from = training;
  remove_type_marks(from);
  Json compiled = json_object({{"optimizer", nullptr},
                               {"loss", nullptr},
                               {"loss_weights", nullptr},
                               {"metrics", nullptr},
                               {"weighted_metrics", nullptr},
                               {"run_eagerly", false},
                               {"steps_per_execution", 1},
                               {"jit_compile", false}});
  if (Json* optimizer = find(from, "optimizer_config")) {
    upgrade_optimizer(*optimizer);
    compiled["optimizer"] = *optimizer;
  }
  for (const char* key : {"loss", "loss_weights", "metrics", "weighted_metrics"})
    if (const Json* value = find(from, key)) compiled[key] = *value;
  upgrade_loss(compiled["loss"]);
  for (const char* key : {"metrics", "weighted_metrics"}) {
    Json& metrics = compiled[key];
    upgrade_metric(metrics);
    if (metrics.is_array() && metrics.size() == 1 && metrics[0].is_array()) metrics = Json(metrics[0]);  // one output
  }
  return compiled;
}

Json training_of(const Json& compiled) {
  Json from = compiled.is_object() ? compiled : Json::object();
  Json optimizer = json_object({{"class_name", nullptr}, {"config", Json::object()}});
  if (Json* found = find(from, "optimizer")) {
    optimizer["class_name"] = found->is_string() ? *found : Json(text(*found, "class_name"));
    if (const Json* config = find(*found, "config")) optimizer["config"] = *config;
  }
  Json training = json_object({{"optimizer_config", std::move(optimizer)}});
  for (const char* key : {"loss", "loss_weights", "metrics", "weighted_metrics"}) {
    const Json* value = find(from, key);
    training[key] = value != nullptr ? *value : Json();
  }
  return training;
}

}  // namespace plimsoll::engine
