#include "formats/json/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// The memory of nlohmann's values on a 64-bit machine: 16 bytes each, twice that if their array may just have grown,
// plus the memory they point to. Measured, including malloc's overhead.
constexpr Bytes kValueBytes = 32, kContainerBytes = 32, kTextBytes = 48, kKeyBytes = 80;

struct Excess {
  size_t at = 0;
  std::string what;
};

// Scans the text once without allocating and stops at the first byte that exceeds a limit. The counts may be wrong for
// text that is not JSON, which the parser rejects anyway.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::optional<Excess> excess() {
    if (static_cast<Bytes>(text_.size()) > limits::kJsonBytes)
      return Excess{0, fmt::format("it has {}; JSON may have at most {}",
                                   format_bytes(static_cast<Bytes>(text_.size())), format_bytes(limits::kJsonBytes))};
    while (at_ < text_.size()) {
      const size_t begin = at_;
      step();
      if (depth_ > limits::kJsonDepth)
        return Excess{begin, fmt::format("nested deeper than {} levels", limits::kJsonDepth)};
      if (memory_ > limits::kJsonMemory)
        return Excess{begin,
                      fmt::format("its values would take more than {} of memory", format_bytes(limits::kJsonMemory))};
    }
    return std::nullopt;
  }

 private:
  void step() {
    const char c = text_[at_++];
    if (c == '"') return skip_text();
    if (c == '{' || c == '[') {
      ++depth_;
      memory_ += kValueBytes + kContainerBytes;
    } else if (c == '}' || c == ']') {
      --depth_;
    } else if (c == ':') {
      memory_ += kKeyBytes;  // in addition to its text and its value
    } else if (!is_between_values(c)) {
      while (at_ < text_.size() && !is_between_values(text_[at_]) && !is_bracket_or_quote(text_[at_])) ++at_;
      memory_ += kValueBytes;
    }
  }

  void skip_text() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
    memory_ += kValueBytes + kTextBytes + static_cast<Bytes>(at_ - begin);
  }

  static bool is_between_values(char c) {
    return c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
  }
  static bool is_bracket_or_quote(char c) { return c == '{' || c == '}' || c == '[' || c == ']' || c == '"'; }

  std::string_view text_;
  size_t at_ = 0;
  int64_t depth_ = 0;
  Bytes memory_ = 0;
};

tl::unexpected<Error> bad_text(ErrorCode code, std::string_view text, size_t at, const std::string& label,
                               std::string_view what) {
  const auto before = text.substr(0, std::min(at, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto last_break = before.rfind('\n');
  const auto column = before.size() - (last_break == std::string_view::npos ? 0 : last_break + 1) + 1;
  // The reason quotes the file, which may contain any bytes.
  std::string printable(what);
  for (char& c : printable)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return fail(code, fmt::format("{}: line {}, column {}: {}", label, line, column, printable));
}

// nlohmann's text is "[json.exception...] parse error at line 1, column 5: syntax error ...". The last part is the
// reason. It quotes the token at which parsing stopped, however long the token is.
std::string_view reason(std::string_view what) {
  constexpr size_t kLongest = 200;
  const auto column = what.find("column ");
  const auto colon = what.find(": ", column == std::string_view::npos ? 0 : column);
  return (colon == std::string_view::npos ? what : what.substr(colon + 2)).substr(0, kLongest);
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& label, ErrorCode bad) {
  if (const auto excess = Scan(text).excess()) return bad_text(bad, text, excess->at, label, excess->what);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return bad_text(bad, text, error.byte == 0 ? 0 : error.byte - 1, label, reason(error.what()));
  } catch (const nlohmann::json::exception& error) {  // a number is out of range
    return bad_text(bad, text, 0, label, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{}: not enough memory to parse its {} bytes of JSON", label, text.size()));
  }
}

}  // namespace plimsoll::engine
