#include "api/config_text.h"

#include <fmt/format.h>

#include "formats/json/parse.h"

namespace plimsoll::engine {

Result<nlohmann::json> parse_config(const std::string& text) {
  auto json = parse_json(text, "the configuration");
  if (json && json->is_object()) return json;
  constexpr size_t kShown = 60;
  std::string shown = text.substr(0, kShown);
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return fail(ErrorCode::kBadConfig,
              fmt::format("the configuration is not a JSON object: '{}{}'", shown, text.size() > kShown ? "..." : ""));
}

}  // namespace plimsoll::engine
