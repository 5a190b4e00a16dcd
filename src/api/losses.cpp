#include "plimsoll/losses.h"

#include "api/config_json.h"
#include "base/json.h"

namespace plimsoll {
namespace {

using engine::json_object;
using nlohmann::json;

Loss loss(const char* class_name, const char* name, json config) {
  config["name"] = name;
  config["reduction"] = "sum_over_batch_size";
  return engine::Access::make<Loss>(engine::keras_json("keras.losses", class_name, std::move(config)));
}

json crossentropy(const losses::CrossentropyOptions& options) {
  return json_object(
      {{"from_logits", options.from_logits}, {"label_smoothing", options.label_smoothing}, {"axis", -1}});
}

}  // namespace

namespace losses {

Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options) {
  return loss("SparseCategoricalCrossentropy", "sparse_categorical_crossentropy",
              json_object({{"from_logits", options.from_logits}, {"ignore_class", nullptr}}));
}
Loss CategoricalCrossentropy(const CrossentropyOptions& options) {
  return loss("CategoricalCrossentropy", "categorical_crossentropy", crossentropy(options));
}
Loss BinaryCrossentropy(const CrossentropyOptions& options) {
  return loss("BinaryCrossentropy", "binary_crossentropy", crossentropy(options));
}
Loss MeanSquaredError() {
  return loss("MeanSquaredError", "mean_squared_error", json::object());
}
Loss MeanAbsoluteError() {
  return loss("MeanAbsoluteError", "mean_absolute_error", json::object());
}
Loss Custom(const std::string& class_name, const std::string& config_json) {
  return engine::Access::make<Loss>(engine::keras_json("keras.losses", class_name, engine::parsed_json(config_json)));
}

}  // namespace losses

namespace metrics {

Metric BinaryAccuracy(double threshold) {
  return engine::Access::make<Metric>(engine::keras_json(
      "keras.metrics", "BinaryAccuracy", json_object({{"name", "binary_accuracy"}, {"threshold", threshold}})));
}
Metric Custom(const std::string& class_name, const std::string& config_json) {
  return engine::Access::make<Metric>(
      engine::keras_json("keras.metrics", class_name, engine::parsed_json(config_json)));
}

}  // namespace metrics
}  // namespace plimsoll
