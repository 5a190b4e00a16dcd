// Keras configurations inside the values of the C++ interface. They are stored as nlohmann JSON and checked when a
// model is built from them. Until then they may hold values that JSON text cannot express: numbers that are not finite
// and bytes that are not UTF-8.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "plimsoll/config_value.h"
#include "plimsoll/description.h"

namespace plimsoll::engine {

struct ConfigJson {
  nlohmann::json value;
};

// Gives the library access to the private members of the public classes.
struct Access {
  static const nlohmann::json& json(const ConfigValue& value) { return value.json_->value; }
  template <typename Value>
  static Value make(nlohmann::json json) {
    return Value(std::make_shared<const ConfigJson>(ConfigJson{std::move(json)}));
  }

  static const std::shared_ptr<const DescribedLayer>& layer(const Layer& layer);
  static plimsoll::Layer layer(DescribedLayer layer);
  static const std::shared_ptr<CallNode>& node(const Tensor& tensor) { return tensor.node_; }
  static size_t index(const Tensor& tensor) { return tensor.index_; }
  static Tensor tensor(std::shared_ptr<CallNode> node, size_t index) { return {std::move(node), index}; }
  static const std::shared_ptr<const DescribedModel>& model(const plimsoll::Description& d) { return d.model_; }
  static plimsoll::Description description(DescribedModel model);
};

// {"module", "class_name", "config", "registered_name"}, as Keras writes its own classes.
nlohmann::json keras_json(const std::string& module, const std::string& class_name, nlohmann::json config);
nlohmann::json policy_json(const std::string& name);  // for a dtype policy
nlohmann::json optional_json(const std::optional<double>& number);

// Returns the JSON object in `text`. If the text is not a JSON object, returns a value that marks the error;
// check_json() finds it inside any other value.
nlohmann::json parsed_json(const std::string& text);
nlohmann::json broken_json(const std::string& what);

// Fails with P201 and the name of the field if a number is not finite, text is not UTF-8, or a value is broken_json().
Status check_json(const nlohmann::json& value, const std::string& where);
// Fails with P201 if a layer or model cannot have this name.
Status check_name(const std::string& name, const std::string& where);

std::string shown_json(const nlohmann::json& value);  // never throws

}  // namespace plimsoll::engine
