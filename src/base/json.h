// Functions that make JSON objects from fields. nlohmann's own `{{"key", value}}` leaks the fields made so far if
// memory runs out while it is evaluated; these functions do not.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace plimsoll::engine {

template <typename Json>
struct JsonField {
  const char* key;
  mutable Json value;  // mutable because the elements of an initializer list are const and could not be moved from
};

template <typename Json>
Json object_of(std::initializer_list<JsonField<Json>> fields) {
  Json object = Json::object();
  for (const JsonField<Json>& field : fields) object.emplace(field.key, std::move(field.value));
  return object;
}

inline nlohmann::json json_object(std::initializer_list<JsonField<nlohmann::json>> fields) {
  return object_of<nlohmann::json>(fields);
}

// Keeps the fields in the given order.
inline nlohmann::ordered_json ordered_object(std::initializer_list<JsonField<nlohmann::ordered_json>> fields) {
  return object_of<nlohmann::ordered_json>(fields);
}

}  // namespace plimsoll::engine
