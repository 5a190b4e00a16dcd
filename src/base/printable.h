// Text that may come from a file, a path or another program, made fit to be printed.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::engine {

// The same text, with whatever could do something to a terminal or forge a line made visible: control characters,
// DEL and marks that turn the direction of writing become "\x1b" or "\u202e" in letters, bytes that are not UTF-8
// "\xff". Nothing is longer than four times what it was.
std::string printable(std::string_view text);
// The same, but line breaks stay: for text of several lines that we put together.
std::string printable_lines(std::string_view text);

// JSON as nlohmann writes it, with the control characters escaped that JSON allows to stand: DEL and C1.
std::string escape_json_controls(std::string json);

}  // namespace plimsoll::engine
