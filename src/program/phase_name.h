// The names of a program's phases: a kind, and whether the phase runs a smaller last batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::engine {

enum class PhaseKind : uint8_t { kTrain, kBegin, kAccumulate, kApply, kEvaluate, kPredict };

struct PhaseName {
  PhaseKind kind = PhaseKind::kTrain;
  bool tail = false;  // runs the samples that remain after the whole batches
  bool operator==(const PhaseName&) const = default;
};

// Returns the name used in plans and reports: "accumulate", "accumulate_tail".
std::string to_text(PhaseName name);
std::optional<PhaseName> phase_from_text(std::string_view text);

// Returns whether a phase of this kind reads samples.
bool reads_samples(PhaseKind kind);

}  // namespace plimsoll::engine
