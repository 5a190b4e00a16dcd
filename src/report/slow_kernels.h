// Nodes whose kernel is far from the device's roofline, so that no slow path is taken in silence.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "plan/plan.h"

namespace plimsoll::engine {

struct SlowKernel {
  std::string layer, op, kernel;
  double seconds = 0;        // predicted, of one run of the phase that computes gradients
  double limit_seconds = 0;  // what the device's memory and arithmetic allow, and the start of a kernel
};

// Returns the nodes of the phase that computes gradients (of the first phase in a plan without training) that take at
// least 4 times the roofline's seconds and 1 % of the phase, slowest first.
std::vector<SlowKernel> slow_kernels(const Plan& plan, const DeviceInfo& device);

}  // namespace plimsoll::engine
