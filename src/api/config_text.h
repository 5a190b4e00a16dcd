// Parses a JSON configuration that the calling program passes as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace plimsoll::engine {

// Fails with P204 if the text is not a JSON object. The error shows the beginning of the text.
Result<nlohmann::json> parse_config(const std::string& text);

}  // namespace plimsoll::engine
