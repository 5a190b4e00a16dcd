#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace plimsoll::engine {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: the bytes are not UTF-8
};

// Returns the first character of a non-empty text (RFC 3629).
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return {};
  char32_t code = byte(0) & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool is_control(char32_t code) {
  const bool turns_direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  const bool breaks_lines = code == 0x2028 || code == 0x2029;
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || turns_direction || breaks_lines;
}

std::string made_printable(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    if (next.bytes == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (next.code == '\n' && !keep_lines) {
      out += "\\n";
    } else if (next.code == '\n' || !is_control(next.code)) {
      out += text.substr(0, next.bytes);
    } else {
      out += next.code < 0x80 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(next.code))
                              : fmt::format("\\u{:04x}", static_cast<uint32_t>(next.code));
    }
    text.remove_prefix(next.bytes == 0 ? 1 : next.bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return made_printable(text, false);
}

std::string printable_lines(std::string_view text) {
  return made_printable(text, true);
}

std::string escape_json_controls(std::string json) {
  std::string out;
  for (std::string_view rest = json; !rest.empty();) {
    const Character next = first_character(rest);
    if (next.code >= 0x7f && is_control(next.code))
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(next.code));
    else
      out += rest.substr(0, next.bytes == 0 ? 1 : next.bytes);
    rest.remove_prefix(next.bytes == 0 ? 1 : next.bytes);
  }
  return out;
}

}  // namespace plimsoll::engine
