#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace plimsoll::engine {

namespace {

struct Unit {
  std::string_view name;  // in lower case
  double bytes;
};
// A single letter means a binary unit, as in docker, ulimit and SLURM.
constexpr Unit kUnits[] = {
    {"", 1.0},       {"b", 1.0},      {"k", 0x1p10},  {"m", 0x1p20},  {"g", 0x1p30},   {"t", 0x1p40},
    {"ki", 0x1p10},  {"mi", 0x1p20},  {"gi", 0x1p30}, {"ti", 0x1p40}, {"kib", 0x1p10}, {"mib", 0x1p20},
    {"gib", 0x1p30}, {"tib", 0x1p40}, {"kb", 1e3},    {"mb", 1e6},    {"gb", 1e9},     {"tb", 1e12},
};

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const auto bad = [&] {
    return fail(Error{
        ErrorCode::kUsage, fmt::format("'{}' is not a size", text), {}, {"512MiB, 2GiB, 4G, 1.5GB or plain bytes"}});
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return bad();
  std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  std::string unit(rest);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = number * known.bytes;
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

}  // namespace plimsoll::engine
