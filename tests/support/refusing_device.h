// Forwards to another device, but refuses some ops. So lowering does not fold other nodes into these ops.
#pragma once

#include <utility>

#include "device/forwarding_device.h"

namespace plimsoll::engine::testing {

class RefusingDevice final : public ForwardingDevice {
 public:
  // Refuses ops with `part` in their name.
  RefusingDevice(const Device& device, std::string part) : ForwardingDevice(device), part_(std::move(part)) {}

  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (node.op.find(part_) != std::string::npos) return fail(ErrorCode::kUnsupported, "not here: " + node.op);
    return ForwardingDevice::offer(graph, node);
  }

 private:
  std::string part_;
};

}  // namespace plimsoll::engine::testing
