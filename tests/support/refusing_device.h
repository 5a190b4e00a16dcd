// Another device's answers, but for some ops, which it refuses: what lowering would have made of others stays two
// nodes.
#pragma once

#include <utility>

#include "tests/support/forwarding_device.h"

namespace plimsoll::engine::testing {

class RefusingDevice final : public ForwardingDevice {
 public:
  // Ops with `part` in their name are refused.
  RefusingDevice(const Device& device, std::string part) : ForwardingDevice(device), part_(std::move(part)) {}

  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (node.op.find(part_) != std::string::npos) return fail(ErrorCode::kUnsupported, "not here: " + node.op);
    return ForwardingDevice::offer(graph, node);
  }

 private:
  std::string part_;
};

}  // namespace plimsoll::engine::testing
