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

// Returns the least seconds that the device's memory and arithmetic allow for a node, and the start of its kernel. 0:
// the device's rates are not known.
double roofline_seconds(const Graph& graph, const Node& node, const DeviceInfo& device);

// Returns the nodes of the phase that computes gradients (of the first phase in a plan without training) that take at
// least 4 times the roofline's seconds and 1 % of the phase, slowest first.
std::vector<SlowKernel> slow_kernels(const Plan& plan, const DeviceInfo& device);
// The slowest of them as lines of a report; "" without any.
std::string slow_kernels_text(const Plan& plan, const DeviceInfo& device);

}  // namespace plimsoll::engine
