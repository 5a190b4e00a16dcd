// "Did you mean ...": the known names most similar to an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

// Returns at most three known names; none if no name is similar. Ignores case and the separators '-', '_', '.' and ' '.
// Candidates, best first: equal names; names that begin with `name`; names that contain it; the one name with the
// smallest edit distance, if at most a quarter of the letters differ.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known);

// Returns the nearest names as text: "t4-16g", "a100-80g or a100-40g", or "" if no name is similar.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace plimsoll::engine
