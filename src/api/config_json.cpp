#include "api/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/config_text.h"
#include "base/json.h"
#include "base/printable.h"

namespace plimsoll::engine {
namespace {

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

Status misuse(const std::string& where, const std::string& field, const std::string& what) {
  const std::string named = field.empty() ? "" : fmt::format("'{}' ", printable(field));
  return fail(ErrorCode::kUsage, fmt::format("{}: {}{}", where, named, what));
}

Status check_field(const nlohmann::json& value, const std::string& field, const std::string& where) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return misuse(where, field, fmt::format("must be a finite number, got {}", value.get<double>()));
  if (value.is_string() && !is_utf8(value.get_ref<const std::string&>()))
    return misuse(where, field, fmt::format("is not UTF-8: {}", printable(value.get_ref<const std::string&>())));
  if (value.is_binary()) return misuse(where, field, std::string(value.get_binary().begin(), value.get_binary().end()));
  if (!value.is_structured()) return {};
  for (const auto& [key, one] : value.items()) {
    if (value.is_object() && !is_utf8(key)) return misuse(where, field, "has a name that is not UTF-8");
    // The path of a field shows only the argument names of a Keras object: "kernel_regularizer.l2".
    const bool hidden = value.is_array() || (key == "config" && value.contains("class_name"));
    PLIMSOLL_TRY(check_field(one, hidden ? field : field.empty() ? key : field + "." + key, where));
  }
  return {};
}

}  // namespace

nlohmann::json keras_json(const std::string& module, const std::string& class_name, nlohmann::json config) {
  return json_object(
      {{"module", module}, {"class_name", class_name}, {"config", std::move(config)}, {"registered_name", nullptr}});
}

nlohmann::json policy_json(const std::string& name) {
  return keras_json("keras", "DTypePolicy", json_object({{"name", name.empty() ? "float32" : name}}));
}

nlohmann::json optional_json(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json parsed_json(const std::string& text) {
  auto json = parse_config(text);
  return json ? std::move(*json) : broken_json(json.error().what);
}

// JSON text has no binary values, so a binary value can mark an error.
nlohmann::json broken_json(const std::string& what) {
  return nlohmann::json::binary({what.begin(), what.end()});
}

Status check_json(const nlohmann::json& value, const std::string& where) {
  return check_field(value, "", where);
}

Status check_name(const std::string& name, const std::string& where) {
  if (name.empty()) return fail(ErrorCode::kUsage, fmt::format("{}: its name is empty", where));
  if (!is_utf8(name)) return fail(ErrorCode::kUsage, fmt::format("{}: its name is not UTF-8", where));
  if (name.find('/') != std::string::npos)
    return fail(ErrorCode::kUsage, fmt::format("{}: a name must not contain '/'", where));
  return {};
}

std::string shown_json(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace plimsoll::engine

namespace plimsoll {

ConfigValue::ConfigValue(const std::string& keras_name)
    : json_(std::make_shared<const engine::ConfigJson>(engine::ConfigJson{keras_name})) {}

std::string ConfigValue::to_json() const {
  return engine::shown_json(json_->value);
}

}  // namespace plimsoll
