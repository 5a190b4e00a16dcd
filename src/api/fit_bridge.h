// Connects the callbacks of the public interface to the training loop, as its observer.
#pragma once

#include "api/model_state.h"

namespace plimsoll::engine {

class FitBridge final : public FitObserver, public Training {
 public:
  FitBridge(plimsoll::Model& model, ModelState& state, const plimsoll::FitOptions& options)
      : model_(model), state_(state), options_(options) {}

  // FitObserver: called by the loop.
  Status on_train_begin(int64_t steps, FitControl& control) override;
  Status on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows, FitControl& control) override;
  Status on_step(const StepEvent& event, FitControl& control) override;
  Status on_epoch_end(const EpochEvent& event, FitControl& control) override;
  Status on_train_end(FitControl& control) override;
  void on_note(const std::string& text) override { state_.run().options().tell(text); }
  bool needs_every_step() const override;

  // Training: called by callbacks.
  plimsoll::Model& model() override { return model_; }
  int64_t epoch() const override { return epoch_; }
  int64_t steps() const override { return steps_; }
  double learning_rate() const override;
  Result<void> set_learning_rate(double rate) override;
  void stop() override { control_->stop = true; }

 private:
  template <typename Call>
  Status call_each(FitControl& control, const Call& call);

  plimsoll::Model& model_;
  ModelState& state_;
  const plimsoll::FitOptions& options_;
  FitControl* control_ = nullptr;  // of the current call
  int64_t epoch_ = 0, steps_ = 0;
};

}  // namespace plimsoll::engine
