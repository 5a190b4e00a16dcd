// UTF-8, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll::engine {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// Returns the length in bytes of the character that `text` begins with, or of the bytes that one U+FFFD replaces; then
// `valid` is false. `text` is not empty.
size_t utf8_character(std::string_view text, bool& valid);
// Adds a character to `text`; one that Unicode does not have becomes U+FFFD.
void append_utf8(uint32_t character, std::string& text);
bool is_utf8(std::string_view text);

}  // namespace plimsoll::engine
