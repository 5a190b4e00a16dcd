// JSON objects from their fields. nlohmann's own `{{"key", value}}` loses what it has made so far when memory runs out
// in the middle of it; this does not.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace plimsoll::engine {

template <typename Json>
struct JsonField {
  const char* key;
  mutable Json value;  // an initializer list hands out nothing else to move from
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

// Its fields stay in the order they are given.
inline nlohmann::ordered_json ordered_object(std::initializer_list<JsonField<nlohmann::ordered_json>> fields) {
  return object_of<nlohmann::ordered_json>(fields);
}

}  // namespace plimsoll::engine
