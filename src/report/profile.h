// Where the time goes: every node measured, beside what the plan predicted.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "execute/probe.h"

namespace plimsoll::engine {

class Profile {
 public:
  void attach(Session& session);  // which this must outlive
  std::string text() const;       // the slowest first

 private:
  struct Times {
    double seconds = 0;
    int64_t runs = 0;
  };
  std::map<const PhasePlan*, std::vector<Times>> phases_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace plimsoll::engine
