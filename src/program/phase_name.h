// What the phases of a program are called: a kind, and whether it runs a smaller last batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::engine {

enum class PhaseKind : uint8_t { kTrain, kBegin, kAccumulate, kApply, kEvaluate, kPredict };

struct PhaseName {
  PhaseKind kind = PhaseKind::kTrain;
  bool tail = false;  // for the samples that remain when whole batches have been cut off
  bool operator==(const PhaseName&) const = default;
};

// As plans and reports write it: "accumulate", "accumulate_tail".
std::string to_text(PhaseName name);
std::optional<PhaseName> phase_from_text(std::string_view text);

// Whether a run of such a phase reads samples.
bool reads_samples(PhaseKind kind);

}  // namespace plimsoll::engine
