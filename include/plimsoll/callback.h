/// @file
/// Callbacks of `fit`: they look at the run, change the learning rate, stop it, or fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/error.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// A number that training or evaluation reports, under Keras's name: "loss", "accuracy", "val_loss".
struct MetricValue {
  std::string name;  ///< Keras's name.
  double value = 0;  ///< The mean over the samples.
};

/// What a step, an epoch or an evaluation reports; the loss comes first.
class Logs {
 public:
  /// No metrics.
  Logs() = default;
  /// These metrics.
  explicit Logs(std::vector<MetricValue> metrics) : metrics_(std::move(metrics)) {}

  /// The metrics in Keras's order.
  const std::vector<MetricValue>& metrics() const { return metrics_; }
  /// The value of a metric, or nothing if there is none of that name.
  std::optional<double> find(std::string_view name) const;
  /// The loss; NaN if there is none.
  double loss() const;

 private:
  std::vector<MetricValue> metrics_;
};

class Model;

/// The run that a callback is called in.
class Training {
 public:
  virtual ~Training() = default;

  /// The model. Its weights may be read and set, and it may be saved; another `fit`, `step`, `evaluate` or `predict` is
  /// an error (P201).
  virtual Model& model() = 0;
  /// The epoch under way, from 0.
  virtual int64_t epoch() const = 0;
  /// Optimizer steps made so far, those before a resume included.
  virtual int64_t steps() const = 0;
  /// The learning rate of the next step.
  virtual double learning_rate() const = 0;
  /// Sets the learning rate from the next step on. P201 if a schedule sets it, or if it is not a number above or equal
  /// to 0.
  virtual Result<void> set_learning_rate(double rate) = 0;
  /// Ends training after this step or epoch, as `model.stop_training = True` does in Keras.
  virtual void stop() = 0;
};

/// Base class of callbacks, called on the thread that called `fit`. An error that one returns ends `fit`, which returns
/// that error; what was trained until then stays in the model.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Before the first step.
  virtual Result<void> on_train_begin(Training&) { return {}; }
  /// Before the first step of an epoch.
  virtual Result<void> on_epoch_begin(Training&) { return {}; }
  /// After each optimizer step. `logs` are of this step's samples alone.
  virtual Result<void> on_step_end(Training&, const Logs& /*logs*/) { return {}; }
  /// After an epoch and its validation. `logs` are means over the epoch; those of the validation begin with "val_".
  virtual Result<void> on_epoch_end(Training&, const Logs& /*logs*/) { return {}; }
  /// After the last step. It is not called if `fit` fails.
  virtual Result<void> on_train_end(Training&) { return {}; }
  /// Returns whether on_step_end must see each step before the next one starts. On a GPU that costs speed, because the
  /// host then waits for every step.
  virtual bool needs_every_step() const { return true; }
};

/// Ready-made callbacks under Keras's names. EarlyStopping, ReduceLROnPlateau and ModelCheckpoint are members of
/// FitOptions instead, because a checkpoint keeps their state.
namespace callbacks {

/// Calls functions; those that are empty are left out.
struct Lambda final : Callback {
  /// What is called at the end of a step or epoch.
  using Function = std::function<Result<void>(Training&, const Logs&)>;
  Function step_end;   ///< Called after each optimizer step.
  Function epoch_end;  ///< Called after each epoch.

  /// Calls these functions.
  explicit Lambda(Function after_step, Function after_epoch = {})
      : step_end(std::move(after_step)), epoch_end(std::move(after_epoch)) {}
  Result<void> on_step_end(Training& training, const Logs& logs) override {
    return step_end ? step_end(training, logs) : Result<void>();
  }
  Result<void> on_epoch_end(Training& training, const Logs& logs) override {
    return epoch_end ? epoch_end(training, logs) : Result<void>();
  }
  bool needs_every_step() const override { return static_cast<bool>(step_end); }
};

/// Sets the learning rate at the beginning of each epoch: schedule(epoch, current rate).
class LearningRateScheduler final : public Callback {
 public:
  /// Asks `schedule` in each epoch.
  explicit LearningRateScheduler(std::function<double(int64_t epoch, double rate)> schedule)
      : schedule_(std::move(schedule)) {}
  Result<void> on_epoch_begin(Training& training) override {
    return training.set_learning_rate(schedule_(training.epoch(), training.learning_rate()));
  }
  bool needs_every_step() const override { return false; }

 private:
  std::function<double(int64_t, double)> schedule_;
};

}  // namespace callbacks

}  // namespace plimsoll
#pragma GCC visibility pop
