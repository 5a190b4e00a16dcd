// The JSON that a program hands in as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace plimsoll::engine {

// P204 if the text is no JSON object; its beginning is shown.
Result<nlohmann::json> parse_config(const std::string& text);

}  // namespace plimsoll::engine
