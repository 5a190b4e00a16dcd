// Names of the values that connect a program to its caller: ports for batches and predictions, step scalars that the
// host sets before a phase runs, and values that live between phases.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/tensor.h"

namespace plimsoll::engine {

// Names of a graph's inputs and outputs, from the name of the model's input or output.
std::string input_value(const std::string& input);           // "x:NAME"
std::string target_value(const std::string& output);         // "y:NAME"
std::string sample_weight_value(const std::string& output);  // "weight:NAME", [N]
std::string prediction_value(const std::string& output);     // "prediction:NAME"

// Persistent `[]` T. The loss of an output is the sum over rows times this factor: its loss weight divided by the rows
// of the effective batch.
std::string loss_factor_value(const std::string& output);  // "scale:NAME"
// Persistent `[]` T: the sum so far in a window or an evaluated batch.
std::string tally_value(const std::string& tally);  // "tally:loss"
bool is_tally_value(std::string_view value);
// Persistent: the gradient of a weight summed over the window so far. Exists only if the window is split into
// micro-batches.
std::string accumulated_value(const std::string& weight);  // "accumulated:dense/kernel"

// Persistent `[]` T: the number of rows so far in the window of masked losses, and of unmasked rows among them. Exist
// only if the window is split.
inline constexpr const char* kMaskRows = "mask:rows";
inline constexpr const char* kMaskCounted = "mask:counted";

// Persistent values that the host sets before phases run. A graph contains those that it reads.
enum class StepScalar : uint8_t {
  kOne,            // `[]` T, 1: the factor of tallies
  kLearningRate,   // `[]` T
  kRateIfSkipped,  // `[]` T, the rate if an overflow caused the previous update to be skipped
  kKnownSkips,     // `[]` i64, the number of skipped updates for which kLearningRate was computed
  kIteration,      // `[]` i64, the number of this update, starting at 1
  kRandom,         // [2] i64, seed and update number: the key of the random numbers
  kFirstSample,    // [1] i64, index of this micro-batch's first sample in the effective batch
  kSampleShare,    // `[]` T, 1 / the samples of the effective batch, or of the evaluated one
};
inline constexpr size_t kStepScalars = 8;
std::string_view name_of(StepScalar scalar);

class GraphBuilder;
// Returns the scalar as a value of the graph. `dtype` is the variables' dtype (T); integer scalars ignore it.
int32_t step_scalar(GraphBuilder& b, StepScalar scalar, DType dtype);

}  // namespace plimsoll::engine
