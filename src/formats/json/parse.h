// JSON from a file nobody vouches for: config.json, metadata.json, a bare architecture, a saved plan, a checkpoint's
// header. Nothing else parses such text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::engine {

// `bad` with line and column when `text` is not JSON or goes beyond what limits.h allows in length, depth (a walk over
// it would exhaust the stack) or memory; that is known before any of it is parsed. Where an object has a key twice the
// last one counts, as in Python, so what is read here is what Keras reads. `label` is what messages call the text.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& label,
                                  ErrorCode bad = ErrorCode::kBadConfig);

}  // namespace plimsoll::engine
