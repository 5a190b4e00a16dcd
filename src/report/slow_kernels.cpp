#include "report/slow_kernels.h"

#include <algorithm>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

constexpr double kFar = 4, kShare = 0.01;
constexpr double kStartSeconds = 20e-6;  // of a kernel; small tensors take no longer than that

bool is_half(const Graph& graph, const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    const DType dtype = graph.type(id).dtype;
    return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  });
}

double limit_of(const Graph& graph, const Node& node, const DeviceInfo& device) {
  double bytes = 0;
  for (ValueId id : node.inputs) bytes += static_cast<double>(graph.value(id).bytes());
  for (ValueId id : node.outputs) bytes += static_cast<double>(graph.value(id).bytes());
  const double rate = is_half(graph, node) ? device.half_flops_per_second : device.flops_per_second;
  return kStartSeconds + std::max(bytes / device.bytes_per_second, flops_of(graph, node) / rate);
}

}  // namespace

std::vector<SlowKernel> slow_kernels(const Plan& plan, const DeviceInfo& device) {
  std::vector<SlowKernel> slow;
  const PhasePlan* phase = plan.phase(plan.gradient_phase());
  if (phase == nullptr && !plan.phases.empty()) phase = &plan.phases.front();
  const bool known = device.bytes_per_second > 0 && device.flops_per_second > 0 && device.half_flops_per_second > 0;
  if (phase == nullptr || !known) return slow;
  for (size_t n = 0; n < phase->nodes.size(); ++n) {
    const Node& node = phase->graph.nodes[n];
    const PlannedNode& planned = phase->nodes[n];
    if (planned.seconds < kShare * phase->seconds || op_def(node.op).copies) continue;
    const double limit = limit_of(phase->graph, node, device);
    if (planned.seconds < kFar * limit) continue;
    slow.push_back({node.layer, node.op, planned.kernel, planned.seconds, limit});
  }
  std::sort(slow.begin(), slow.end(), [](const SlowKernel& a, const SlowKernel& b) { return a.seconds > b.seconds; });
  return slow;
}

}  // namespace plimsoll::engine
