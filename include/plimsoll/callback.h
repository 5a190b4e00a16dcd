/// @file
/// Callbacks of `fit`. A callback can observe the run, change the learning rate, stop the run, or fail.
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
  double value = 0;  ///< The mean over the samples; of a metric that is a vector, the mean of its elements.
  std::vector<double> elements = {};  ///< The elements of a metric that is a vector; empty for other metrics.
};

/// The metrics that a step, an epoch or an evaluation reports. The loss comes first.
class Logs {
 public:
  /// No metrics.
  Logs() = default;
  /// Holds these metrics.
  explicit Logs(std::vector<MetricValue> metrics) : metrics_(std::move(metrics)) {}

  /// The metrics in Keras's order.
  const std::vector<MetricValue>& metrics() const { return metrics_; }
  /// Returns the value of a metric, or nothing if no metric has that name.
  std::optional<double> find(std::string_view name) const;
  /// Returns the loss, or NaN if there is no loss.
  double loss() const;

 private:
  std::vector<MetricValue> metrics_;
};

class Model;

/// The training run, as a callback sees it.
class Training {
 public:
  virtual ~Training() = default;

  /// The model. A callback may read and set its weights and save it. A call of `fit`, `step`, `evaluate` or `predict`
  /// fails with P201.
  virtual Model& model() = 0;
  /// The current epoch, counted from 0.
  virtual int64_t epoch() const = 0;
  /// The optimizer steps made so far, including those before a resume.
  virtual int64_t steps() const = 0;
  /// The learning rate of the next step.
  virtual double learning_rate() const = 0;
  /// Sets the learning rate from the next step on. Fails with P201 if a schedule sets the learning rate, or if `rate`
  /// is negative or not finite.
  virtual Result<void> set_learning_rate(double rate) = 0;
  /// Ends training after this step or epoch, as `model.stop_training = True` does in Keras.
  virtual void stop() = 0;
};

/// Base class of callbacks, called on the thread that called `fit`. If a callback returns an error, `fit` ends and
/// returns that error. The model keeps the weights that were trained until then.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Called before the first step.
  virtual Result<void> on_train_begin(Training&) { return {}; }
  /// Called before the first step of an epoch.
  virtual Result<void> on_epoch_begin(Training&) { return {}; }
  /// Called after each optimizer step. `logs` are means over this step's samples alone.
  virtual Result<void> on_step_end(Training&, const Logs& /*logs*/) { return {}; }
  /// Called after an epoch and its validation. `logs` are means over the epoch. The names of validation metrics begin
  /// with "val_".
  virtual Result<void> on_epoch_end(Training&, const Logs& /*logs*/) { return {}; }
  /// Called after the last step, but not if `fit` fails.
  virtual Result<void> on_train_end(Training&) { return {}; }
  /// Returns whether on_step_end must see each step before the next one starts. On a GPU that costs speed, because the
  /// host then waits for every step.
  virtual bool needs_every_step() const { return true; }
};

/// Ready-made callbacks under Keras's names. EarlyStopping, ReduceLROnPlateau and ModelCheckpoint are members of
/// FitOptions instead, because a checkpoint keeps their state.
namespace callbacks {

/// A callback that calls functions. Empty functions are skipped.
struct Lambda final : Callback {
  /// The type of a function that is called at the end of a step or epoch.
  using Function = std::function<Result<void>(Training&, const Logs&)>;
  Function step_end;   ///< Called after each optimizer step.
  Function epoch_end;  ///< Called after each epoch.

  /// Makes a callback that calls these functions.
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
  /// Makes a callback that calls `schedule` in each epoch.
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
