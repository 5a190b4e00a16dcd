/// @file
/// The optimizers of Keras, which update the weights, and their learning-rate schedules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/config_value.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// A learning rate that depends on the number of updates; made by a function in plimsoll::schedules.
class Schedule : public ConfigValue {
 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// A learning rate: a number or a Schedule.
class LearningRate : public ConfigValue {
 public:
  /// The same rate at every step.
  LearningRate(double rate);  // NOLINT(google-explicit-constructor)
  /// A rate that depends on the step.
  LearningRate(const Schedule& schedule) : ConfigValue(schedule) {}  // NOLINT(google-explicit-constructor)
};

/// An optimizer; made by a function in plimsoll::optimizers, or implicitly from a Keras name, "adam".
class Optimizer : public ConfigValue {
 public:
  /// The optimizer of this Keras name.
  Optimizer(const char* keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)
  /// The optimizer of this Keras name.
  Optimizer(const std::string& keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)

 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// The learning-rate schedules of Keras. Steps count updates of the weights; the number of steps must be positive.
namespace schedules {

/// Arguments of ExponentialDecay() and InverseTimeDecay().
struct DecayOptions {
  bool staircase = false;  ///< Whether the rate changes only every `decay_steps`.
};
/// initial_learning_rate * decay_rate ^ (step / decay_steps).
Schedule ExponentialDecay(double initial_learning_rate, int64_t decay_steps, double decay_rate,
                          const DecayOptions& options = {});
/// initial_learning_rate / (1 + decay_rate * step / decay_steps).
Schedule InverseTimeDecay(double initial_learning_rate, int64_t decay_steps, double decay_rate,
                          const DecayOptions& options = {});

/// values[i] up to step boundaries[i], then the last value. There must be one more value than boundaries.
Schedule PiecewiseConstantDecay(const std::vector<int64_t>& boundaries, const std::vector<double>& values);

/// Arguments of PolynomialDecay().
struct PolynomialDecayOptions {
  double end_learning_rate = 0.0001;  ///< The rate after `decay_steps`.
  double power = 1;                   ///< 1: a straight line.
  bool cycle = false;                 ///< Whether the decay starts again, with longer steps, once it has ended.
};
/// From initial_learning_rate to end_learning_rate along a polynomial.
Schedule PolynomialDecay(double initial_learning_rate, int64_t decay_steps, const PolynomialDecayOptions& options = {});

/// Arguments of CosineDecay().
struct CosineDecayOptions {
  double alpha = 0;                          ///< The lowest rate, as a fraction of the highest.
  std::optional<double> warmup_target = {};  ///< The rate to rise to first; absent: no warm-up.
  int64_t warmup_steps = 0;                  ///< The number of warm-up steps.
};
/// Decays along half a cosine, after an optional linear warm-up.
Schedule CosineDecay(double initial_learning_rate, int64_t decay_steps, const CosineDecayOptions& options = {});

/// Arguments of CosineDecayRestarts().
struct CosineDecayRestartsOptions {
  double t_mul = 2;  ///< The length of a period relative to the period before; at least 1.
  double m_mul = 1;  ///< The highest rate of a period, relative to the highest rate of the period before.
  double alpha = 0;  ///< The lowest rate, as a fraction of the initial rate.
};
/// Cosine decays one after the other.
Schedule CosineDecayRestarts(double initial_learning_rate, int64_t first_decay_steps,
                             const CosineDecayRestartsOptions& options = {});

}  // namespace schedules

/// The optimizers of Keras, with Keras's arguments and defaults. At most one of clipnorm, global_clipnorm and clipvalue
/// may be set.
namespace optimizers {

/// Arguments of SGD().
struct SGDOptions {
  LearningRate learning_rate = 0.01;           ///< A number or a schedule.
  double momentum = 0;                         ///< From 0 to 1.
  bool nesterov = false;                       ///< Whether the momentum is Nesterov's.
  std::optional<double> weight_decay = {};     ///< Decoupled weight decay; absent: none.
  std::optional<double> clipnorm = {};         ///< The largest norm of each weight's gradient.
  std::optional<double> clipvalue = {};        ///< The largest magnitude of an element of a gradient.
  std::optional<double> global_clipnorm = {};  ///< The largest norm of all gradients together.
  std::string name = {};                       ///< The optimizer's name in the saved file; "": Keras's automatic name.
};
/// Arguments of Adam().
struct AdamOptions {
  LearningRate learning_rate = 0.001;          ///< A number or a schedule.
  double beta_1 = 0.9;                         ///< Decay rate of the first moment.
  double beta_2 = 0.999;                       ///< Decay rate of the second moment.
  double epsilon = 1e-7;                       ///< Added to the divisor.
  std::optional<double> weight_decay = {};     ///< Decoupled weight decay; absent: none.
  std::optional<double> clipnorm = {};         ///< The largest norm of each weight's gradient.
  std::optional<double> clipvalue = {};        ///< The largest magnitude of an element of a gradient.
  std::optional<double> global_clipnorm = {};  ///< The largest norm of all gradients together.
  std::string name = {};                       ///< The optimizer's name in the saved file; "": Keras's automatic name.
};
/// Arguments of AdamW().
struct AdamWOptions {
  LearningRate learning_rate = 0.001;          ///< A number or a schedule.
  double weight_decay = 0.004;                 ///< Decoupled weight decay.
  double beta_1 = 0.9;                         ///< Decay rate of the first moment.
  double beta_2 = 0.999;                       ///< Decay rate of the second moment.
  double epsilon = 1e-7;                       ///< Added to the divisor.
  std::optional<double> clipnorm = {};         ///< The largest norm of each weight's gradient.
  std::optional<double> clipvalue = {};        ///< The largest magnitude of an element of a gradient.
  std::optional<double> global_clipnorm = {};  ///< The largest norm of all gradients together.
  std::string name = {};                       ///< The optimizer's name in the saved file; "": Keras's automatic name.
};

Optimizer SGD(const SGDOptions& options = {});       ///< Stochastic gradient descent, with or without momentum.
Optimizer SGD(const LearningRate& learning_rate);    ///< All other arguments have their defaults.
Optimizer Adam(const AdamOptions& options = {});     ///< Adam.
Optimizer Adam(const LearningRate& learning_rate);   ///< All other arguments have their defaults.
Optimizer AdamW(const AdamWOptions& options = {});   ///< Adam with weight decay.
Optimizer AdamW(const LearningRate& learning_rate);  ///< All other arguments have their defaults.

/// Any other optimizer class of Keras, with its configuration as JSON in the form that get_config() returns.
Optimizer Custom(const std::string& class_name, const std::string& config_json = "{}");

}  // namespace optimizers
}  // namespace plimsoll
#pragma GCC visibility pop
