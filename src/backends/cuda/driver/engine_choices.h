// Which engine was fastest for a problem, remembered across runs: a line of text each in the cache folder. A choice is
// a hint: one that no longer exists, or a file that cannot be read or written, only costs the measurement again.
#pragma once

#include <optional>
#include <string>

namespace plimsoll::engine::cuda {

// A key names the problem, the card and the library's version. Neither may hold tabs or line ends.
std::optional<std::string> remembered_choice(const std::string& key);
void remember_choice(const std::string& key, const std::string& choice);

// Writes what is new beside what other processes wrote meanwhile. Also done when the program ends.
void save_choices();

}  // namespace plimsoll::engine::cuda
