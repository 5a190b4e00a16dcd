// Estimates the gradient noise scale of a training from the micro-batches of its steps (McCandlish et al., "An
// Empirical Model of Large-Batch Training", 2018, appendix A.1): the batch size at which the noise of a gradient is as
// large as the gradient. Far smaller batches make slower progress per step than they could; far larger ones waste
// samples.
#pragma once

#include <optional>

#include "execute/session.h"

namespace plimsoll::engine {

class NoiseScale {
 public:
  // Steps are looked at once per so many, because reading all gradients takes time.
  static constexpr int64_t kEvery = 10;
  static constexpr int64_t kLeastSteps = 3;

  // Call it after each micro-batch, before the update: `samples` of this micro-batch, `done` of the window with it, and
  // `window` in the window. `step` counts from 0.
  Status look(const Session& session, int64_t step, int64_t samples, int64_t done, int64_t window);

  int64_t steps() const { return steps_; }
  // In samples. Nothing before kLeastSteps steps, or if the gradient was too small to tell from noise.
  std::optional<double> samples() const;

 private:
  double first_ = 0;  // squared norm of the mean gradient of the first micro-batch of this window
  int64_t first_samples_ = 0;
  double noise_ = 0, signal_ = 0;  // sums of unbiased estimates over the steps
  int64_t steps_ = 0;
};

}  // namespace plimsoll::engine
