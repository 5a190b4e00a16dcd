// Checked reading of numbers from untrusted JSON. nlohmann's get<int64_t>() converts any number: for 1e300 the result
// is undefined, and numbers from 2^63 up become negative.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace plimsoll::engine {

// Returns an integer from `least` to `most`; nullopt for anything else, including 3.0.
inline std::optional<int64_t> whole_number(const nlohmann::json& json, int64_t least,
                                           int64_t most = std::numeric_limits<int64_t>::max()) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return std::nullopt;
  const auto value = json.get<int64_t>();
  return value < least || value > most ? std::nullopt : std::optional(value);
}

}  // namespace plimsoll::engine
