#include "program/phase_name.h"

#include <array>

namespace plimsoll::engine {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"train", "begin", "accumulate", "apply", "evaluate", "predict"};
constexpr std::string_view kTail = "_tail";

}  // namespace

std::string to_text(PhaseName name) {
  std::string text(kNames[static_cast<size_t>(name.kind)]);
  return name.tail ? text + std::string(kTail) : text;
}

std::optional<PhaseName> phase_from_text(std::string_view text) {
  const bool tail = text.ends_with(kTail);
  if (tail) text.remove_suffix(kTail.size());
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return PhaseName{static_cast<PhaseKind>(i), tail};
  return std::nullopt;
}

bool reads_samples(PhaseKind kind) {
  return kind != PhaseKind::kBegin && kind != PhaseKind::kApply;
}

}  // namespace plimsoll::engine
