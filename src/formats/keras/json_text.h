// JSON from a file nobody vouches for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll {

// P204 with line and column when `text` is not JSON, or nests deeper than any model does (a walk over it would exhaust
// the stack).
Result<nlohmann::json> parse_json(std::string_view text, const std::string& label);

}  // namespace plimsoll
