// A device that forwards to another one. Derive from it to change one or two answers.
#pragma once

#include "device/device.h"

namespace plimsoll::engine {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(const Device& device) : device_(device) {}

  const DeviceInfo& info() const override { return device_.info(); }
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override { return device_.offer(graph, node); }
  bool fuses(const Graph& graph, const Node& node) const override { return device_.fuses(graph, node); }
  bool groups(const Graph& graph, const Node& node) const override { return device_.groups(graph, node); }
  size_t largest_group(const Graph& graph, const Node& node) const override {
    return device_.largest_group(graph, node);
  }
  bool recomputes_freely() const override { return device_.recomputes_freely(); }
  bool has_epilogues() const override { return device_.has_epilogues(); }
  Padding padding(const Graph& graph, const Node& node) const override { return device_.padding(graph, node); }
  double host_bytes_per_second() const override { return device_.host_bytes_per_second(); }
  Bytes overhead_bound(const BoundCounts& counts) const override { return device_.overhead_bound(counts); }
  Bytes planning_bound(int64_t nodes) const override { return device_.planning_bound(nodes); }

 private:
  const Device& device_;
};

}  // namespace plimsoll::engine
