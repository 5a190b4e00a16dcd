// Makes text from a file, a path or another program safe to print.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::engine {

// Escapes everything that could control a terminal or forge a line. Control characters, DEL and bidirectional marks
// become text such as "\x1b" or "\u202e"; bytes that are not UTF-8 become text such as "\xff". The result is at most
// four times as long as the input.
std::string printable(std::string_view text);
// Same as printable(), but keeps line breaks: for text of several lines that Plimsoll composed.
std::string printable_lines(std::string_view text);

// Returns nlohmann's JSON text with DEL and the C1 controls escaped too; JSON allows them unescaped.
std::string escape_json_controls(std::string json);

}  // namespace plimsoll::engine
