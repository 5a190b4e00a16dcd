// Measures the time of every node and compares it with the plan's prediction.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "execute/probe.h"
#include "report/step_profile.h"

namespace plimsoll::engine {

class Profile {
 public:
  void attach(Session& session);  // the profile must outlive the session
  // Runs each node of a training step several times in a row, apart from all others, and takes its mean for `steps`
  // steps: for a device whose queue makes the time of a single run unclear. Overwrites the arena.
  Status measure_alone(Session& session, int64_t steps);
  std::string text() const;  // slowest nodes first
  // The same as means of `steps` steps, for `plimsoll profile`.
  std::vector<NodeTime> per_step(int64_t steps, const DeviceInfo& device) const;

 private:
  struct Times {
    double seconds = 0;
    int64_t runs = 0;
  };
  std::map<const PhasePlan*, std::vector<Times>> phases_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace plimsoll::engine
