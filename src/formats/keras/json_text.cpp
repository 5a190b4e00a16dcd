#include "formats/keras/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace plimsoll {
namespace {

constexpr int kDeepest = 512;

// The first byte at which brackets nest deeper than kDeepest.
std::optional<size_t> too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return i;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::nullopt;
}

tl::unexpected<Error> bad(std::string_view text, size_t at, const std::string& label, std::string_view what) {
  const auto before = text.substr(0, std::min(at, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto last_break = before.rfind('\n');
  const auto column = before.size() - (last_break == std::string_view::npos ? 0 : last_break + 1) + 1;
  // The reason quotes the file, which may hold anything.
  std::string printable(what);
  for (char& c : printable)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return fail(ErrorCode::kBadConfig, fmt::format("{}: line {}, column {}: {}", label, line, column, printable));
}

// nlohmann's text is "[json.exception...] parse error at line 1, column 5: syntax error ...": the last part is the
// reason.
std::string_view reason(std::string_view what) {
  const auto column = what.find("column ");
  const auto colon = what.find(": ", column == std::string_view::npos ? 0 : column);
  return colon == std::string_view::npos ? what : what.substr(colon + 2);
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& label) {
  if (const auto at = too_deep(text))
    return bad(text, *at, label, fmt::format("nested deeper than {} levels", kDeepest));
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return bad(text, error.byte == 0 ? 0 : error.byte - 1, label, reason(error.what()));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    return bad(text, 0, label, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: no memory left to parse its {} bytes of JSON", label, text.size()));
  }
}

}  // namespace plimsoll
