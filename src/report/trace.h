// `fit --profile FIRST:LAST -o FILE`: what ran in these steps, in the JSON that ui.perfetto.dev and chrome://tracing
// open: a slice per node and per wait for data, and the bytes in use in the arena as a counter.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "execute/probe.h"

namespace plimsoll::engine {

// The steps of --profile, counted from 1; both are traced, as with Keras's profile_batch.
struct StepRange {
  int64_t first = 1, last = 1;
};

class Trace {
 public:
  // Nothing is attached to the session outside of the steps of the range, so other steps run as without a trace.
  Trace(Session& session, const StepRange& range) : session_(session), range_(range) {}
  ~Trace() { stop(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void begin(int64_t steps_made);  // before the first step
  void on_step(int64_t step);      // after each step
  void on_read(double seconds);    // after a wait for data
  bool has_steps() const { return !steps_.empty(); }
  nlohmann::json json() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Ran {
    const PhasePlan* phase;
    size_t node;
    double begin, end;  // microseconds since begin_
  };
  struct Span {
    int64_t step;
    double begin, end;
  };
  double now() const { return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count(); }
  void start();
  void stop();

  Session& session_;
  StepRange range_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Ran> nodes_;
  std::vector<Span> steps_, reads_;
  double node_began_ = 0, step_began_ = 0;
  bool watching_ = false;
};

}  // namespace plimsoll::engine
