// Remembers across runs which engine was fastest for a problem, as lines of text in the cache folder. A choice is only
// a hint: if the engine no longer exists or the file cannot be read or written, the engines are measured again.
#pragma once

#include <optional>
#include <string>

namespace plimsoll::engine::cuda {

// The key consists of the problem, the card and the library's version. Keys and choices must not contain tabs or
// newlines.
std::optional<std::string> remembered_choice(const std::string& key);
void remember_choice(const std::string& key, const std::string& choice);

// Writes new choices and keeps those that other processes wrote in the meantime. Also called when the program ends.
void save_choices();

}  // namespace plimsoll::engine::cuda
