#include "base/utf8.h"

namespace plimsoll::engine {

// The well-formed sequences of the Unicode standard, table 3-7. A sequence that breaks off counts as one replacement up
// to the byte that does not fit.
size_t utf8_character(std::string_view text, bool& valid) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  valid = first < 0x80;
  if (valid) return 1;
  size_t length = 0;
  unsigned char least = 0x80, most = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) least = 0xa0;
    if (first == 0xed) most = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) least = 0x90;
    if (first == 0xf4) most = 0x8f;
  }
  if (length == 0) return 1;
  size_t good = 1;
  for (; good < length && good < text.size(); ++good) {
    if (byte(good) < least || byte(good) > most) break;
    least = 0x80;
    most = 0xbf;
  }
  valid = good == length;
  return good;
}

void append_utf8(uint32_t character, std::string& text) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](uint32_t shift) { add(0x80 | (character >> shift & 0x3f)); };
  if (character > 0x10ffff || (character >= 0xd800 && character <= 0xdfff)) {
    text += kReplacementCharacter;
  } else if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xc0 | character >> 6);
    tail(0);
  } else if (character < 0x10000) {
    add(0xe0 | character >> 12);
    tail(6);
    tail(0);
  } else {
    add(0xf0 | character >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_utf8(std::string_view text) {
  for (bool valid = true; !text.empty();) {
    text.remove_prefix(utf8_character(text, valid));
    if (!valid) return false;
  }
  return true;
}

}  // namespace plimsoll::engine
