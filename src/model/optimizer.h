// Optimizers and learning-rate schedules, with Keras's formulas and its order of variables.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/constraint.h"

namespace plimsoll::engine {

// The loss is multiplied by a scale, which is halved after an overflow and doubled after a number of steps without one.
struct LossScale {
  double initial = 32768;
  int64_t growth_steps = 2000;
};

struct OptimizerClass;  // a row of the table in optimizer_classes.cpp

struct Optimizer {
  const OptimizerClass* kind = nullptr;  // null: plain SGD
  double learning_rate = 0.01;
  nlohmann::json schedule;  // null: constant; else Keras's {"class_name": "ExponentialDecay", "config": {...}}
  std::map<std::string, double, std::less<>> numbers;  // the options of its class; a flag is 0 or 1
  std::vector<std::string> patterns;  // only Muon: weights with one of these in their name get Adam's update
  double weight_decay = 0;
  std::optional<double> clipvalue, clipnorm, global_clipnorm;
  std::optional<LossScale> loss_scale;
  double loss_scale_factor = 1;         // a constant scale
  std::optional<double> ema_momentum;   // set if moving averages of the weights are kept
  int64_t ema_overwrite_frequency = 0;  // the averages replace the weights every so many updates; 0: at the end of fit
  int64_t accumulation_steps = 1;       // an update every so many windows, as Keras's gradient_accumulation_steps

  double number(std::string_view name) const;
  bool flag(std::string_view name) const { return number(name) != 0; }
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

struct NamedShape {
  std::string name;
  Shape shape;
};

// One variable of an optimizer's state in Keras's file.
struct StateVariable {
  enum class Initial : uint8_t { kNumber, kWeight };
  std::string value;  // the persistent value; "" for a placeholder, which Keras stores as an int32 of 0
  Shape shape;
  Initial initial = Initial::kNumber;
  double number = 0;   // with kNumber: the initial value of every element
  std::string weight;  // with kWeight: the weight whose initial value it takes
};
// Returns the state after the iteration and the learning rate, in the order of Keras's file. `weights` are the
// trainable weights in Keras's order.
std::vector<StateVariable> state_variables(const Optimizer& optimizer, const std::vector<NamedShape>& weights);

// Returns the value of a weight's moving average: "NAME/average".
std::string average_value(const std::string& weight);

struct TrainedWeight {
  ValueId weight = kNone;    // persistent
  ValueId gradient = kNone;  // kNone: the loss does not depend on it; as in Keras, the weight stays unchanged
  std::optional<Constraint> constraint = {};  // applied after the update
  ValueId replaced_by = kNone;                // what the forward pass made of it; kNone: it is unchanged
  ValueId of_tokens = kNone;                  // append_token_sum() over the window, if micro-batches were added up

  ValueId current() const { return replaced_by == kNone ? weight : replaced_by; }
};

// Adds clipping, the updates of all weights, moving averages and constraints. The state is persistent: "NAME/m" and so
// on. Reads the step scalars
// kLearningRate and kIteration. With both a schedule and loss scaling it also reads kKnownSkips and kRateIfSkipped: the
// host sets the learning rate for both cases, because it does not know yet whether an overflow made the previous update
// be skipped. With loss scaling, the gradients are those of the scaled loss, and nothing changes if one of them is not
// finite.
void append_updates(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight> weights);

// "square" or "abs" if the optimizer applies that to the gradient of each token of an embedding table before the tokens
// of a row are added up; else "". Micro-batches must then add up both sums. Also "" if those are not enough, because
// the optimizer clips the tokens or has a loss scale.
std::string_view token_function(const Optimizer& optimizer);
// Adds the sum over the tokens of a micro-batch of that function. `gradient` is the table's. Returns kNone if it is not
// a sum over tokens.
ValueId append_token_sum(GraphBuilder& b, const Optimizer& optimizer, ValueId table, ValueId gradient);

}  // namespace plimsoll::engine
