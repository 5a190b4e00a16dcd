// `plimsoll profile`: where the time of a step goes, by layer and by kind of node, predicted beside measured, and what
// is far from the device's roofline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// One node of a step, with the seconds of all its runs in that step.
struct NodeTime {
  std::string phase, layer, op, kernel;
  double seconds = 0, predicted = 0;
  double limit = 0;  // what the roofline allows; 0: not known
  Bytes bytes = 0;   // read and written
  int64_t runs = 0;
};

struct StepProfile {
  std::string model, device;
  int64_t batch = 0, steps = 0;
  double seconds = 0, predicted = 0;  // of a whole step
  bool alone = false;                 // each node was measured apart from the others
  std::vector<NodeTime> nodes;        // slowest first
};

std::string step_profile_text(const StepProfile& profile);
nlohmann::ordered_json step_profile_json(const StepProfile& profile);  // schema plimsoll.profile/1

}  // namespace plimsoll::engine
