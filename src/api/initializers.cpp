#include "plimsoll/initializers.h"

#include "api/config_json.h"
#include "base/json.h"
#include "plimsoll/regularizers.h"

namespace plimsoll {
namespace {

using Fields = std::initializer_list<engine::JsonField<nlohmann::json>>;

Initializer initializer(const std::string& class_name, nlohmann::json config) {
  return engine::Access::make<Initializer>(engine::keras_json("keras.initializers", class_name, std::move(config)));
}
Initializer initializer(const std::string& class_name, Fields fields = {}) {
  return initializer(class_name, engine::json_object(fields));
}
Initializer random_initializer(const std::string& class_name, Fields fields = {}) {
  nlohmann::json config = engine::json_object(fields);
  config["seed"] = nullptr;
  return initializer(class_name, std::move(config));
}

Regularizer regularizer(const std::string& class_name, Fields fields) {
  return engine::Access::make<Regularizer>(
      engine::keras_json("keras.regularizers", class_name, engine::json_object(fields)));
}

}  // namespace

namespace initializers {

Initializer Zeros() {
  return initializer("Zeros");
}
Initializer Ones() {
  return initializer("Ones");
}
Initializer Constant(double value) {
  return initializer("Constant", {{"value", value}});
}
Initializer RandomUniform(double minval, double maxval) {
  return random_initializer("RandomUniform", {{"minval", minval}, {"maxval", maxval}});
}
Initializer RandomNormal(double mean, double stddev) {
  return random_initializer("RandomNormal", {{"mean", mean}, {"stddev", stddev}});
}
Initializer TruncatedNormal(double mean, double stddev) {
  return random_initializer("TruncatedNormal", {{"mean", mean}, {"stddev", stddev}});
}
Initializer GlorotUniform() {
  return random_initializer("GlorotUniform");
}
Initializer GlorotNormal() {
  return random_initializer("GlorotNormal");
}
Initializer HeUniform() {
  return random_initializer("HeUniform");
}
Initializer HeNormal() {
  return random_initializer("HeNormal");
}
Initializer LecunUniform() {
  return random_initializer("LecunUniform");
}
Initializer LecunNormal() {
  return random_initializer("LecunNormal");
}
Initializer VarianceScaling(double scale, const std::string& mode, const std::string& distribution) {
  return random_initializer("VarianceScaling", {{"scale", scale}, {"mode", mode}, {"distribution", distribution}});
}
Initializer Orthogonal(double gain) {
  return random_initializer("Orthogonal", {{"gain", gain}});
}
Initializer Identity(double gain) {
  return initializer("Identity", {{"gain", gain}});
}
Initializer Custom(const std::string& class_name, const std::string& config_json) {
  return initializer(class_name, engine::parsed_json(config_json));
}

}  // namespace initializers

Regularizer::Regularizer() : ConfigValue(std::make_shared<const engine::ConfigJson>()) {}

namespace regularizers {

Regularizer L1(double l1) {
  return regularizer("L1", {{"l1", l1}});
}
Regularizer L2(double l2) {
  return regularizer("L2", {{"l2", l2}});
}
Regularizer L1L2(double l1, double l2) {
  return regularizer("L1L2", {{"l1", l1}, {"l2", l2}});
}

}  // namespace regularizers
}  // namespace plimsoll
