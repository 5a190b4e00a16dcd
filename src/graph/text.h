// Shared by printing and parsing of graph text: which names need no quotes after '%', and how the others are quoted.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::engine {

constexpr bool is_plain_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == ':' || c == '-';
}
bool is_plain_name(std::string_view name);
std::string quoted(std::string_view text);

}  // namespace plimsoll::engine
