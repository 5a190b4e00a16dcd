// The values by which a program meets its surroundings, each named in one place: ports, where batches enter and
// predictions leave; step scalars, which the host sets before a phase runs; and what lives between phases.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/tensor.h"

namespace plimsoll::engine {

// Inputs and outputs of a graph, by the name of the model's input or output.
std::string input_value(const std::string& input);           // "x:NAME"
std::string target_value(const std::string& output);         // "y:NAME"
std::string sample_weight_value(const std::string& output);  // "weight:NAME", [N]
std::string prediction_value(const std::string& output);     // "prediction:NAME"

// Persistent: `[]` T. The loss of an output is a sum over rows times its factor: its loss weight divided by the rows of
// the effective batch.
std::string loss_factor_value(const std::string& output);  // "scale:NAME"
// Persistent: `[]` T, what a window or an evaluated batch has summed so far.
std::string tally_value(const std::string& tally);  // "tally:loss"
bool is_tally_value(std::string_view value);
// Persistent: the gradient of a weight over the window so far; only where a window is cut into micro-batches.
std::string accumulated_value(const std::string& weight);  // "accumulated:dense/kernel"

// Persistent: `[]` T, the rows of the window so far whose losses are masked, and those of them that count; only where a
// window is cut.
inline constexpr const char* kMaskRows = "mask:rows";
inline constexpr const char* kMaskCounted = "mask:counted";

// Persistent values that the host sets before phases run. A graph mentions those it reads.
enum class StepScalar : uint8_t {
  kOne,            // `[]` T, 1: the factor of tallies
  kLearningRate,   // `[]` T
  kRateIfSkipped,  // `[]` T, the rate if an overflow prevented the update before this one
  kKnownSkips,     // `[]` i64, the prevented updates that kLearningRate was computed for
  kIteration,      // `[]` i64, the number of this update, from 1 on
  kRandom,         // [2] i64, seed and update: the key of the random numbers
  kFirstSample,    // [1] i64, index in the effective batch of the first sample of this micro-batch
};
inline constexpr size_t kStepScalars = 7;
std::string_view name_of(StepScalar scalar);

class GraphBuilder;
// The scalar as a value of the graph; `dtype` is that of the variables (T), which integers ignore.
int32_t step_scalar(GraphBuilder& b, StepScalar scalar, DType dtype);

}  // namespace plimsoll::engine
