#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace plimsoll {

Result<Bytes> parse_bytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{{"", 1.0},
                                                                                  {"B", 1.0},
                                                                                  {"KiB", 1024.0},
                                                                                  {"MiB", 1048576.0},
                                                                                  {"GiB", 1073741824.0},
                                                                                  {"TiB", 1099511627776.0},
                                                                                  {"KB", 1e3},
                                                                                  {"MB", 1e6},
                                                                                  {"GB", 1e9},
                                                                                  {"TB", 1e12}}};
  const auto bad = [&] {
    return fail(
        Error{ErrorCode::kUsage, fmt::format("'{}' is not a size", text), {}, {"512MiB, 2GiB, 1.5GB or plain bytes"}});
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return bad();
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (bytes > 9e18) return bad();
    return static_cast<Bytes>(bytes);
  }
  return bad();
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int decimals = std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kNames[unit]);
}

}  // namespace plimsoll
