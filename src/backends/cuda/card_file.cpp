// Reads a card profile from a user's JSON file; docs/gpu.md lists the keys.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "backends/cuda/card.h"
#include "base/suggest.h"
#include "formats/file/file.h"
#include "formats/json/parse.h"
#include "model/config.h"

namespace plimsoll::engine::cuda {
namespace {

using Json = nlohmann::json;

constexpr Bytes kMostFileBytes = 64 * kKiB;
constexpr double kPerTera = 1e12, kPerGiga = 1e9;
constexpr const char* kSuffix = ".json";

// The accepted range of a number. The bounds are far wider than any existing card: they catch wrong units, not new
// cards.
struct NumberKey {
  const char* key;
  double least, most;
  bool whole;
  const char* unit;
  void (*set)(Card& card, double value);
};

constexpr NumberKey kNumbers[] = {
    {"multiprocessors", 1, 4096, true, "", [](Card& c, double v) { c.multiprocessors = static_cast<int>(v); }},
    {"memory_mib", 1024, 16 * 1024 * 1024, true, "MiB",
     [](Card& c, double v) { c.memory_bytes = c.free_bytes = static_cast<Bytes>(v) * kMiB; }},
    {"l2_mib", 1, 16384, true, "MiB", [](Card& c, double v) { c.l2_bytes = static_cast<Bytes>(v) * kMiB; }},
    {"context_mib", 64, 16384, true, "MiB", [](Card& c, double v) { c.context_bytes = static_cast<Bytes>(v) * kMiB; }},
    {"memory_gb_per_s", 10, 1e6, false, "GB/s", [](Card& c, double v) { c.bytes_per_second = v * kPerGiga; }},
    {"float32_tflops", 0.1, 1e6, false, "TFLOP/s", [](Card& c, double v) { c.flops_f32 = v * kPerTera; }},
    {"tf32_tflops", 0, 1e6, false, "TFLOP/s", [](Card& c, double v) { c.flops_tf32 = v * kPerTera; }},
    {"half_tflops", 0.1, 1e6, false, "TFLOP/s", [](Card& c, double v) { c.flops_half = v * kPerTera; }},
    {"host_gb_per_s", 0.1, 1e5, false, "GB/s", [](Card& c, double v) { c.host_bytes_per_second = v * kPerGiga; }},
};
constexpr int kOldestCapability = 75, kNewestCapability = 299;

std::vector<std::string> known_keys() {
  std::vector<std::string> keys = {"name", "compute_capability"};
  for (const NumberKey& number : kNumbers) keys.emplace_back(number.key);
  return keys;
}

tl::unexpected<Error> bad_profile(const std::string& path, const std::string& what) {
  return fail(Error{ErrorCode::kBadConfig,
                    fmt::format("{}: {}", path, what),
                    {fmt::format("the keys of a card profile are {}", fmt::join(known_keys(), ", "))},
                    {"docs/gpu.md   shows an example profile and explains each key"}});
}

Status check_keys(const Json& json, const std::string& path) {
  const std::vector<std::string> known = known_keys();
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string meant = suggestion(key, known);
      return bad_profile(path, fmt::format("'{}' is not a key of a card profile{}", key,
                                           meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
    }
  for (const std::string& key : known)
    if (!json.contains(key)) return bad_profile(path, fmt::format("'{}' is missing", key));
  return {};
}

// Parses "8.6" to 86.
std::optional<int> capability_of(const std::string& text) {
  const size_t dot = text.find('.');
  if (dot == std::string::npos || dot + 2 != text.size() || dot < 1 || dot > 2) return std::nullopt;
  const std::string digits = text.substr(0, dot) + text.substr(dot + 1);
  int value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Status read_number(const Json& json, const NumberKey& key, const std::string& path, Card& card) {
  const Json& value = json.at(key.key);
  const std::string wanted = fmt::format("a {}number from {} to {}{}{}", key.whole ? "whole " : "", key.least, key.most,
                                         *key.unit ? " " : "", key.unit);
  if (!value.is_number()) return bad_profile(path, fmt::format("'{}' must be {}", key.key, wanted));
  const double number = value.get<double>();
  if (!(number >= key.least && number <= key.most) || (key.whole && number != std::floor(number)))
    return bad_profile(path, fmt::format("'{}' must be {}, got {}", key.key, wanted, value.dump()));
  key.set(card, number);
  return {};
}

Result<Card> card_of(const Json& json, const std::string& path) {
  if (!json.is_object()) return bad_profile(path, "expected a JSON object with a card profile");
  PLIMSOLL_TRY(check_keys(json, path));
  Card card;
  const Json &name = json.at("name"), &capability = json.at("compute_capability");
  if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
      name.get_ref<const std::string&>().size() > 100)
    return bad_profile(path, "'name' must be a string of 1 to 100 characters");
  card.name = name.get<std::string>();
  const auto number = capability.is_string() ? capability_of(capability.get<std::string>()) : std::nullopt;
  if (!number || *number < kOldestCapability || *number > kNewestCapability)
    return bad_profile(
        path,
        fmt::format("'compute_capability' must be a string from \"{}.{}\" to \"{}.{}\", such as \"8.6\"",
                    kOldestCapability / 10, kOldestCapability % 10, kNewestCapability / 10, kNewestCapability % 10));
  card.capability = *number;
  for (const NumberKey& key : kNumbers) PLIMSOLL_TRY(read_number(json, key, path, card));
  if (card.context_bytes >= card.memory_bytes)
    return bad_profile(path, "'context_mib' must be less than 'memory_mib', or no memory is left for training");
  const size_t begin = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  card.profile = path.substr(begin, path.size() - begin - std::string(kSuffix).size());
  return card;
}

}  // namespace

bool is_profile_file(const std::string& device) {
  return lower_case(device).ends_with(kSuffix);
}

Result<Card> card_from_file(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  if (file.size() > kMostFileBytes)
    return bad_profile(path, fmt::format("{} is too large for a card profile", format_bytes(file.size())));
  std::string text(static_cast<size_t>(file.size()), '\0');
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(text))));
  PLIMSOLL_ASSIGN(const Json json, parse_json(text, path));
  return card_of(json, path);
}

}  // namespace plimsoll::engine::cuda
