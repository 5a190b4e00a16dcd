// Numbers of JSON that came from outside. nlohmann's get<int64_t>() converts whatever number there is: 1e300 has no
// value as an integer, and 2^63 and above becomes negative.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace plimsoll::engine {

// A whole number from `least` to `most`; nothing for everything else, 3.0 included.
inline std::optional<int64_t> whole_number(const nlohmann::json& json, int64_t least,
                                           int64_t most = std::numeric_limits<int64_t>::max()) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return std::nullopt;
  const auto value = json.get<int64_t>();
  return value < least || value > most ? std::nullopt : std::optional(value);
}

}  // namespace plimsoll::engine
