// "Did you mean ...": the known names that are nearest to one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

// Case and the separators '-', '_', '.' and ' ' do not count. In this order: names that are equal then; names that
// begin with `name`; names that contain it; the one name that differs from it in the fewest letters, if those are no
// more than a quarter. Empty where nothing is near; at most three names.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known);

// "t4-16g", "a100-80g or a100-40g"; "" where nothing is near.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace plimsoll::engine
