// Another device's answers, but for updates of tables row by row, which it refuses: gradients of tables stay.
#pragma once

#include "device/device.h"

namespace plimsoll::testing {

class DenseDevice final : public Device {
 public:
  explicit DenseDevice(const Device& device) : device_(device) {}

  const DeviceInfo& info() const override { return device_.info(); }
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (node.op.ends_with("_rows")) return fail(ErrorCode::kUnsupported, "only whole gradients here");
    return device_.offer(graph, node);
  }
  bool fuses(const Graph& graph, const Node& node) const override { return device_.fuses(graph, node); }
  bool groups(const Graph& graph, const Node& node) const override { return device_.groups(graph, node); }
  size_t largest_group(const Graph& graph, const Node& node) const override {
    return device_.largest_group(graph, node);
  }
  bool recomputes_freely() const override { return device_.recomputes_freely(); }
  bool has_epilogues() const override { return device_.has_epilogues(); }
  Padding padding(const Graph& graph, const Node& node) const override { return device_.padding(graph, node); }
  Bytes overhead_bound(int primitives) const override { return device_.overhead_bound(primitives); }

 private:
  const Device& device_;
};

}  // namespace plimsoll::testing
