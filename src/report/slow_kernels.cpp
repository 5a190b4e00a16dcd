#include "report/slow_kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op.h"
#include "report/text_table.h"

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

}  // namespace

double roofline_seconds(const Graph& graph, const Node& node, const DeviceInfo& device) {
  if (device.bytes_per_second <= 0 || device.flops_per_second <= 0 || device.half_flops_per_second <= 0) return 0;
  double bytes = 0;
  for (ValueId id : node.inputs) bytes += static_cast<double>(graph.value(id).bytes());
  for (ValueId id : node.outputs) bytes += static_cast<double>(graph.value(id).bytes());
  const double rate = is_half(graph, node) ? device.half_flops_per_second : device.flops_per_second;
  return kStartSeconds + std::max(bytes / device.bytes_per_second, flops_of(graph, node) / rate);
}

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
    if (node.op.ends_with("_done")) continue;  // it waits for a copy; that is the price of offload
    const double limit = roofline_seconds(phase->graph, node, device);
    if (planned.seconds < kFar * limit) continue;
    slow.push_back({node.layer, node.op, planned.kernel, planned.seconds, limit});
  }
  std::sort(slow.begin(), slow.end(), [](const SlowKernel& a, const SlowKernel& b) { return a.seconds > b.seconds; });
  return slow;
}

std::string slow_kernels_text(const Plan& plan, const DeviceInfo& device) {
  constexpr size_t kMost = 5;
  const std::vector<SlowKernel> slow = slow_kernels(plan, device);
  std::string text;
  for (size_t i = 0; i < slow.size() && i < kMost; ++i) {
    const SlowKernel& one = slow[i];
    text += wrapped(fmt::format("slow kernel: {}{}{} ({}) takes {}, {:.0f} times what the device allows", one.op,
                                one.layer.empty() ? "" : " of ", one.layer, one.kernel, duration_text(one.seconds),
                                one.seconds / std::max(one.limit_seconds, 1e-9)),
                    4);
  }
  if (slow.size() > kMost) text += fmt::format("and {} more slow kernels\n", slow.size() - kMost);
  return text.empty() ? text : "\n" + text;
}

}  // namespace plimsoll::engine
