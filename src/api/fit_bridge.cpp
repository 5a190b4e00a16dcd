#include "api/fit_bridge.h"

#include <algorithm>

namespace plimsoll::engine {

// If a callback sets the learning rate, here or through the model, the loop uses that rate from then on.
template <typename Call>
Status FitBridge::call_each(FitControl& control, const Call& call) {
  control_ = &control;
  OptimizerState& reached = state_.run().optimizer();
  for (const auto& callback : options_.callbacks) {
    reached.learning_rate = control.learning_rate;
    const Result<void> status = call(*callback);
    control.learning_rate = reached.learning_rate;
    if (!status) return tl::make_unexpected(status.error());
  }
  return {};
}

Status FitBridge::on_train_begin(int64_t steps, FitControl& control) {
  steps_ = steps;
  return call_each(control, [&](Callback& callback) { return callback.on_train_begin(*this); });
}

Status FitBridge::on_epoch_begin(int64_t epoch, int64_t /*epochs*/, int64_t /*windows*/, FitControl& control) {
  epoch_ = epoch;
  return call_each(control, [&](Callback& callback) { return callback.on_epoch_begin(*this); });
}

Status FitBridge::on_step(const StepEvent& event, FitControl& control) {
  steps_ = event.step;
  if (event.own == nullptr) return {};
  const Logs logs = logs_of(*event.own);
  return call_each(control, [&](Callback& callback) { return callback.on_step_end(*this, logs); });
}

Status FitBridge::on_epoch_end(const EpochEvent& event, FitControl& control) {
  const Logs logs = logs_of(event.metrics);
  return call_each(control, [&](Callback& callback) { return callback.on_epoch_end(*this, logs); });
}

Status FitBridge::on_train_end(FitControl& control) {
  return call_each(control, [&](Callback& callback) { return callback.on_train_end(*this); });
}

bool FitBridge::needs_every_step() const {
  return std::any_of(options_.callbacks.begin(), options_.callbacks.end(),
                     [](const auto& callback) { return callback->needs_every_step(); });
}

double FitBridge::learning_rate() const {
  return state_.learning_rate();
}

Result<void> FitBridge::set_learning_rate(double rate) {
  return state_.set_learning_rate(rate);
}

}  // namespace plimsoll::engine
