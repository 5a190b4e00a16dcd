// Parses untrusted JSON: config.json, metadata.json, a bare architecture, a saved plan, a checkpoint's header. All such
// text is parsed here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::engine {

// Fails with `bad`, line and column if `text` is not JSON or exceeds a limit of limits.h on length, depth (recursion
// must not exhaust the stack) or memory. The limits are checked before parsing. If an object has a key twice, the last
// one is used, as in Python, so the result is what Keras reads. `label` is the text's name in messages.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& label,
                                  ErrorCode bad = ErrorCode::kBadConfig);

}  // namespace plimsoll::engine
