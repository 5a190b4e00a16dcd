// Optimizers and learning-rate schedules, with Keras's formulas and its order of variables.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

// The loss is multiplied by a scale, which is halved after an overflow and doubled after a number of steps without one.
struct LossScale {
  double initial = 32768;
  int64_t growth_steps = 2000;
};

struct Optimizer {
  enum class Kind { kSgd, kAdam };  // AdamW is Adam with weight decay
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;
  nlohmann::json schedule;  // null: constant; else Keras's {"class_name": "ExponentialDecay", "config": {...}}
  double momentum = 0;
  bool nesterov = false;
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  double weight_decay = 0;
  std::optional<double> clipvalue, clipnorm, global_clipnorm;
  std::optional<LossScale> loss_scale;
};

// Persistent scalars of loss scaling: the scale (T), the steps since it last changed (i64), and the number of updates
// skipped because of an overflow (i64).
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLossScaleSteps = "loss_scale/steps";
inline constexpr const char* kSkippedUpdates = "loss_scale/skipped";
// Returns the initial gradient of the loss: the scale, or kNone, which means 1.
ValueId loss_gradient(GraphBuilder& b, const Optimizer& optimizer, DType dtype);

// Parses a Keras name or a serialised optimizer. Appends unsupported features to `unsupported`.
Optimizer parse_optimizer(const nlohmann::json& config, std::vector<std::string>& unsupported);
std::string check_schedule(const nlohmann::json& schedule);  // "" or the unsupported feature

// Returns the learning rate for the update after `iteration` updates, as Keras computes it.
double learning_rate_at(const Optimizer& optimizer, int64_t iteration);

// The state of one weight, in the order of Keras's file: {"momentum"} or {"m", "v"}.
std::vector<std::string> state_names(const Optimizer& optimizer);

struct TrainedWeight {
  ValueId weight = kNone;    // persistent
  ValueId gradient = kNone;  // kNone: the loss does not depend on it; as in Keras, the weight stays unchanged
};

// Adds clipping and the updates of all weights. The state is persistent: "NAME/m" and so on. Reads the step scalars
// kLearningRate and kIteration. With both a schedule and loss scaling it also reads kKnownSkips and kRateIfSkipped: the
// host sets the learning rate for both cases, because it does not know yet whether an overflow made the previous update
// be skipped. With loss scaling, the gradients are those of the scaled loss, and nothing changes if one of them is not
// finite.
void append_updates(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight> weights);

}  // namespace plimsoll::engine
