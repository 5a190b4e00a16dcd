// Another device's answers, but for updates of tables row by row, which it refuses: gradients of tables stay.
#pragma once

#include "tests/support/forwarding_device.h"

namespace plimsoll::testing {

class DenseDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (node.op.ends_with("_rows")) return fail(ErrorCode::kUnsupported, "only whole gradients here");
    return ForwardingDevice::offer(graph, node);
  }
};

}  // namespace plimsoll::testing
