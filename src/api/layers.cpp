// The C++ interface's layers: Keras configurations, written as Keras itself writes them.
#include <algorithm>
#include <cmath>
#include <map>

#include "api/config_text.h"
#include "base/json.h"
#include "plimsoll/plimsoll.h"

namespace plimsoll {
using namespace engine;
namespace {

using nlohmann::json;

bool is_finite(const json& value) {
  if (value.is_structured()) return std::all_of(value.begin(), value.end(), is_finite);
  return !value.is_number_float() || std::isfinite(value.get<double>());
}

// JSON has no NaN, and dump() would write null, which means a default. Bytes that are no UTF-8 are replaced, where
// dump() would throw. Trainer::create then says what is wrong with the text.
std::string text_of(const json& value) {
  if (!is_finite(value)) return "a number in it is not finite";
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json initializer(const char* name) {
  return json_object({{"module", "keras.initializers"},
                      {"class_name", name},
                      {"config", json::object()},
                      {"registered_name", nullptr}});
}

LayerSpec pool(const char* class_name, Pair size, const PoolOptions& options) {
  return {class_name, text_of(json_object({{"pool_size", size},
                                           {"padding", options.padding},
                                           {"strides", options.strides.value_or(size)},
                                           {"data_format", "channels_last"}}))};
}

// Keras names layers after their class, counting from the second on: conv2d, conv2d_1.
std::string snake_case(const std::string& class_name) {
  std::string name;
  for (size_t i = 0; i < class_name.size(); ++i) {
    const char c = class_name[i];
    const bool upper = c >= 'A' && c <= 'Z';
    const bool after_lower = i > 0 && class_name[i - 1] >= 'a' && class_name[i - 1] <= 'z';
    if (upper && after_lower) name += '_';
    name += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

}  // namespace

LayerSpec Input(const std::vector<int64_t>& shape, const std::string& dtype) {
  json batch_shape = json::array({nullptr});
  for (int64_t d : shape) batch_shape.push_back(d);
  return {"InputLayer", text_of(json_object({{"batch_shape", batch_shape}, {"dtype", dtype}, {"sparse", false}}))};
}

LayerSpec Conv2D(int64_t filters, Pair kernel_size, const ConvOptions& options) {
  return {"Conv2D", text_of(json_object({{"filters", filters},
                                         {"kernel_size", kernel_size},
                                         {"strides", options.strides},
                                         {"padding", options.padding},
                                         {"data_format", "channels_last"},
                                         {"dilation_rate", {1, 1}},
                                         {"groups", 1},
                                         {"activation", options.activation},
                                         {"use_bias", options.use_bias},
                                         {"kernel_initializer", initializer("GlorotUniform")},
                                         {"bias_initializer", initializer("Zeros")}}))};
}

LayerSpec MaxPooling2D(Pair pool_size, const PoolOptions& options) {
  return pool("MaxPooling2D", pool_size, options);
}
LayerSpec AveragePooling2D(Pair pool_size, const PoolOptions& options) {
  return pool("AveragePooling2D", pool_size, options);
}
LayerSpec GlobalAveragePooling2D() {
  return {"GlobalAveragePooling2D", text_of(json_object({{"data_format", "channels_last"}, {"keepdims", false}}))};
}
LayerSpec Flatten() {
  return {"Flatten", text_of(json_object({{"data_format", "channels_last"}}))};
}

LayerSpec Dense(int64_t units, const DenseOptions& options) {
  return {"Dense", text_of(json_object({{"units", units},
                                        {"activation", options.activation},
                                        {"use_bias", options.use_bias},
                                        {"kernel_initializer", initializer("GlorotUniform")},
                                        {"bias_initializer", initializer("Zeros")}}))};
}

LayerSpec Dropout(double rate) {
  return {"Dropout", text_of(json_object({{"rate", rate}, {"seed", nullptr}, {"noise_shape", nullptr}}))};
}

LayerSpec BatchNormalization() {
  return {"BatchNormalization", text_of(json_object({{"axis", -1},
                                                     {"momentum", 0.99},
                                                     {"epsilon", 0.001},
                                                     {"center", true},
                                                     {"scale", true},
                                                     {"beta_initializer", initializer("Zeros")},
                                                     {"gamma_initializer", initializer("Ones")},
                                                     {"moving_mean_initializer", initializer("Zeros")},
                                                     {"moving_variance_initializer", initializer("Ones")},
                                                     {"synchronized", false}}))};
}

LayerSpec Rescaling(double scale, double offset) {
  return {"Rescaling", text_of(json_object({{"scale", scale}, {"offset", offset}}))};
}
LayerSpec Activation(const std::string& activation) {
  return {"Activation", text_of(json_object({{"activation", activation}}))};
}

Sequential::Sequential(const std::vector<LayerSpec>& layers, const std::string& name) {
  json list = json::array();
  std::map<std::string, int> used;
  for (const LayerSpec& layer : layers) {
    auto parsed = parse_config(layer.config);
    if (!parsed) {
      fault_ = "layer " + std::to_string(list.size()) + " (" + layer.class_name + "): " + parsed.error().what;
      return;
    }
    json& config = *parsed;
    const std::string base = snake_case(layer.class_name);
    const int count = used[base]++;
    config["name"] = count == 0 ? base : base + "_" + std::to_string(count);
    if (layer.class_name != "InputLayer") {
      config["trainable"] = true;
      config["dtype"] = json_object({{"module", "keras"},
                                     {"class_name", "DTypePolicy"},
                                     {"config", json_object({{"name", "float32"}})},
                                     {"registered_name", nullptr}});
    }
    list.push_back(json_object({{"module", "keras.layers"},
                                {"class_name", layer.class_name},
                                {"config", config},
                                {"registered_name", nullptr}}));
  }
  const json dtype = json_object({{"module", "keras"},
                                  {"class_name", "DTypePolicy"},
                                  {"config", json_object({{"name", "float32"}})},
                                  {"registered_name", nullptr}});
  config_ = text_of(
      json_object({{"module", "keras"},
                   {"class_name", "Sequential"},
                   {"config", json_object({{"name", name}, {"trainable", true}, {"dtype", dtype}, {"layers", list}})},
                   {"registered_name", nullptr}}));
}

namespace {

OptimizerSpec optimizer(const char* class_name, json config) {
  const json common = json_object({{"weight_decay", nullptr},
                                   {"clipnorm", nullptr},
                                   {"global_clipnorm", nullptr},
                                   {"clipvalue", nullptr},
                                   {"use_ema", false},
                                   {"ema_momentum", 0.99},
                                   {"ema_overwrite_frequency", nullptr},
                                   {"loss_scale_factor", nullptr},
                                   {"gradient_accumulation_steps", nullptr}});
  for (const auto& [key, value] : common.items())
    if (!config.contains(key)) config[key] = value;
  return {text_of(json_object(
      {{"module", "keras.optimizers"}, {"class_name", class_name}, {"config", config}, {"registered_name", nullptr}}))};
}

LossSpec loss(const char* class_name, json config) {
  config["reduction"] = "sum_over_batch_size";
  return {text_of(json_object(
      {{"module", "keras.losses"}, {"class_name", class_name}, {"config", config}, {"registered_name", nullptr}}))};
}

json adam(double learning_rate) {
  return json_object({{"name", "adam"},
                      {"learning_rate", learning_rate},
                      {"beta_1", 0.9},
                      {"beta_2", 0.999},
                      {"epsilon", 1e-7},
                      {"amsgrad", false}});
}

}  // namespace

OptimizerSpec Adam(double learning_rate) {
  return optimizer("Adam", adam(learning_rate));
}

OptimizerSpec AdamW(double learning_rate, double weight_decay) {
  json config = adam(learning_rate);
  config["name"] = "adamw";
  config["weight_decay"] = weight_decay;
  return optimizer("AdamW", config);
}

OptimizerSpec SGD(double learning_rate, double momentum, bool nesterov) {
  return optimizer(
      "SGD",
      json_object({{"name", "SGD"}, {"learning_rate", learning_rate}, {"momentum", momentum}, {"nesterov", nesterov}}));
}

LossSpec SparseCategoricalCrossentropy(bool from_logits) {
  return loss("SparseCategoricalCrossentropy", json_object({{"name", "sparse_categorical_crossentropy"},
                                                            {"from_logits", from_logits},
                                                            {"ignore_class", nullptr}}));
}
LossSpec CategoricalCrossentropy(bool from_logits) {
  return loss("CategoricalCrossentropy", json_object({{"name", "categorical_crossentropy"},
                                                      {"from_logits", from_logits},
                                                      {"label_smoothing", 0.0},
                                                      {"axis", -1}}));
}
LossSpec BinaryCrossentropy(bool from_logits) {
  return loss(
      "BinaryCrossentropy",
      json_object(
          {{"name", "binary_crossentropy"}, {"from_logits", from_logits}, {"label_smoothing", 0.0}, {"axis", -1}}));
}
LossSpec MeanSquaredError() {
  return loss("MeanSquaredError", json_object({{"name", "mean_squared_error"}}));
}

}  // namespace plimsoll
