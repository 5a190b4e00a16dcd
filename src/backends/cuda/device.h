#pragma once

#include "backends/cuda/card.h"
#include "device/device.h"

namespace plimsoll::engine::cuda {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(Card card);

  const Card& card() const { return card_; }
  const DeviceInfo& info() const override { return info_; }
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override;
  bool fuses(const Graph& graph, const Node& node) const override;
  bool groups(const Graph& graph, const Node& node) const override;
  size_t largest_group(const Graph& graph, const Node& node) const override;
  bool recomputes_freely() const override { return true; }
  bool has_epilogues() const override { return true; }
  Padding padding(const Graph& graph, const Node& node) const override;
  double host_bytes_per_second() const override { return card_.host_bytes_per_second; }
  Bytes overhead_bound(const BoundCounts& counts) const override;

 private:
  Card card_;
  DeviceInfo info_;
};

}  // namespace plimsoll::engine::cuda
