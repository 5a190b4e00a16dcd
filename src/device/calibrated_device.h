// A device whose kernels take the seconds of a calibration. All other answers are those of the device behind it, so a
// calibration changes no kernel, layout, workspace or result.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/calibration.h"
#include "device/forwarding_device.h"

namespace plimsoll::engine {

class CalibratedDevice final : public ForwardingDevice {
 public:
  CalibratedDevice(const Device& device, std::shared_ptr<const Calibration> calibration);

  const DeviceInfo& info() const override { return info_; }
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override;

 private:
  // Measured divided by offered seconds of the kernels of one op and kernel name, by the size of the problem: the mean
  // logarithm of the ratio per power of two of the offered seconds. Small problems lie in caches, large ones do not.
  using Ratios = std::map<int, double>;

  double seconds_at_rates(const Graph& graph, const Node& node, double offered) const;

  std::shared_ptr<const Calibration> calibration_;
  DeviceInfo info_;
  double old_flops_ = 0, old_bytes_ = 0;  // the rates that the backend's offers assume
  std::map<std::string, Ratios, std::less<>> families_;
};

}  // namespace plimsoll::engine
