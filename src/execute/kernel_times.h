// Times the kernels of a session's plan for a calibration, while it trains: a kernel runs after the kernels that run
// before it in every step, with what they left in the caches.
#pragma once

#include <functional>
#include <vector>

#include "device/calibration.h"
#include "execute/session.h"

namespace plimsoll::engine {

struct TimingOptions {
  double seconds = 4;           // how long to train
  int least_steps = 8;          // even if they take longer
  int most_steps = 400;         // even if they take less time
  int warm_up_steps = 2;        // not timed: the first step makes the arena's pages resident
  std::function<double()> now;  // a clock in seconds; empty: the steady clock
};

struct TimedStep {
  std::vector<KernelTime> kernels;  // each kernel once
  double seconds = 0;               // of a whole step: the lower quartile of steps without timing
  double least_seconds = 0;         // of the fastest of them
};

// `step` runs one optimizer step and waits until it is done.
Result<TimedStep> time_kernels(Session& session, const std::function<Status()>& step, const TimingOptions& options);

}  // namespace plimsoll::engine
