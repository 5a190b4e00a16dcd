// JSON text as the program prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/printable.h"

namespace plimsoll::engine {

// Never throws because of a string's contents. A name or a path need not be UTF-8 but JSON must be, so each invalid
// byte becomes U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = 2) {
  return escape_json_controls(json.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace plimsoll::engine
