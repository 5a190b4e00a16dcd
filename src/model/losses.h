// The losses: one row per class with its names, its options and its formula.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/expression.h"

namespace plimsoll::engine {

struct LossClass;  // a row of the table in losses.cpp
struct TracedLoss;

enum class Reduction : uint8_t { kMean, kSum, kWeightedMean };

struct Loss {
  const LossClass* kind = nullptr;
  std::map<std::string, double, std::less<>> numbers;  // the options of its class; a flag is 0 or 1
  std::optional<std::vector<int64_t>> axes;            // null in Keras: all axes
  std::optional<int64_t> ignored_class;                // rows with this label do not count
  Reduction reduction = Reduction::kMean;
  std::shared_ptr<const TracedLoss> traced;  // a loss that is written in Python (traced_loss.h)

  double number(std::string_view name) const;
  bool flag(std::string_view name) const { return number(name) != 0; }
  // Whether both give the same numbers per row.
  bool same_rows(const Loss& other) const;
};

// What a target looks like.
enum class TargetKind : uint8_t {
  kLikePrediction,
  kLabels,    // one integer per row
  kGroups,    // one integer per sample, of any size
  kSequence,  // a list of integers per sample, at most as long as the prediction has steps; 0 fills the rest
  kOwn,       // of a shape of its own (TracedLoss::target)
};

TargetKind target_kind(const Loss& loss);
std::string_view function_name(const Loss& loss);
// Returns why a sample's loss depends on other samples, or "".
std::string coupling(const Loss& loss, const Shape& sample);
// Returns whether the batch is among its axes: it then returns one number for the batch, or one per remaining element.
bool reduces_batch(const Loss& loss, const Shape& sample);
// Returns how many numbers a sample's prediction of this shape has per row: the loss is a mean over rows.
int64_t elements_per_row(const Loss& loss, const Shape& sample);
int64_t rows_per_sample(const Loss& loss, const Shape& sample);
// Returns "" or why the loss cannot be computed for a prediction of this shape.
std::string check_loss(const Loss& loss, const Shape& sample);
// Whether its rows are the default ones, along the last axis.
bool has_last_axis_rows(const Loss& loss);

const LossClass* traced_loss_class();               // of losses that are written in Python (traced_loss.h)
const LossClass* find_loss(std::string_view name);  // by class, function or short name; null: not supported
std::string default_loss_name(const LossClass& kind);
std::vector<std::string> all_loss_names();
// Reads the arguments of a loss. Metrics that are based on it have the same.
Loss read_loss(const LossClass& kind, Config& config);

// Returns one loss per row, [rows]. `prediction` may be of a half type. If it comes directly from a softmax or sigmoid,
// a cross-entropy is computed from the logits. As in Keras, any of the two functions is combined with any
// cross-entropy, because Keras keeps the logits with the tensor and does not check which function was applied.
Expression loss_rows(const Loss& loss, const Expression& prediction, const Expression& target);

}  // namespace plimsoll::engine
