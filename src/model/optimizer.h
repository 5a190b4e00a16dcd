// Optimizers and learning-rate schedules, with Keras's numbers and Keras's order of variables.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

// The loss is multiplied by a scale that halves after an overflow and doubles after so many steps without one.
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

// Persistent values of loss scaling, all `[]`: the scale, T; steps since it last changed, i64; updates that an overflow
// prevented, i64.
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLossScaleSteps = "loss_scale/steps";
inline constexpr const char* kSkippedUpdates = "loss_scale/skipped";
// What the gradient of the loss starts from: the scale, or kNone for one.
ValueId loss_gradient(GraphBuilder& b, const Optimizer& optimizer, DType dtype);

// Of a Keras name or a serialized optimizer. What is not supported is appended to `unsupported`.
Optimizer parse_optimizer(const nlohmann::json& config, std::vector<std::string>& unsupported);
std::string check_schedule(const nlohmann::json& schedule);  // "" or what is not supported

// The rate of the update that follows `iteration` updates, as Keras computes it.
double learning_rate_at(const Optimizer& optimizer, int64_t iteration);

// State kept for one weight, in the order of Keras's file: {"momentum"} or {"m", "v"}.
std::vector<std::string> state_names(const Optimizer& optimizer);

struct TrainedWeight {
  ValueId weight = kNone;    // persistent
  ValueId gradient = kNone;  // kNone: no path to the loss; Keras leaves such a weight unchanged
};

// Adds clipping and the updates of all weights; state is persistent "NAME/m" and so on. Reads the step scalars
// kLearningRate and kIteration, and with a schedule beside loss scaling kKnownSkips and kRateIfSkipped: the host sets
// the rate for either case before it has seen whether an overflow prevented the update before. With loss scaling the
// gradients are those of the loss times the scale, and nothing changes where one of them is not finite.
void append_updates(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight> weights);

}  // namespace plimsoll::engine
