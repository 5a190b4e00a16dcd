#include "device/calibrated_device.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/kernel_key.h"

namespace plimsoll::engine {
namespace {

// The logarithm of the ratio at this size: linear between the sizes that were measured, constant beyond them.
double ratio_at(const std::map<int, double>& ratios, double size) {
  const auto above = ratios.lower_bound(static_cast<int>(std::ceil(size)));
  if (above == ratios.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == ratios.end()) return below->second;
  const double share = std::clamp((size - below->first) / (above->first - below->first), 0.0, 1.0);
  return below->second + share * (above->second - below->second);
}

}  // namespace

CalibratedDevice::CalibratedDevice(const Device& device, std::shared_ptr<const Calibration> calibration)
    : ForwardingDevice(device), calibration_(std::move(calibration)), info_(device.info()) {
  info_.calibration = calibration_->digest();
  const MachineRates& rates = calibration_->rates();
  old_flops_ = info_.flops_per_second;
  old_bytes_ = info_.bytes_per_second;
  if (rates.flops_per_second > 0) {
    info_.half_flops_per_second *= old_flops_ > 0 ? rates.flops_per_second / old_flops_ : 1;
    info_.flops_per_second = rates.flops_per_second;
  }
  if (rates.bytes_per_second > 0) info_.bytes_per_second = rates.bytes_per_second;
  // A long kernel counts more than a short one.
  std::map<std::string, std::map<int, std::pair<double, double>>, std::less<>> sums;
  for (const KernelTime& time : calibration_->kernels()) {
    auto& [sum, weight] = sums[std::string(family_of(time.key))][std::ilogb(time.offered)];
    sum += time.seconds * std::log(time.seconds / time.offered);
    weight += time.seconds;
  }
  for (const auto& [family, sizes] : sums)
    for (const auto& [size, sum] : sizes) families_[family][size] = sum.first / sum.second;
}

Result<KernelOffer> CalibratedDevice::offer(const Graph& graph, const Node& node) const {
  PLIMSOLL_ASSIGN(KernelOffer offer, ForwardingDevice::offer(graph, node));
  if (!(offer.seconds > 0)) return offer;
  const std::string key = kernel_key(graph, node, offer, info_.tf32);
  if (const KernelTime* measured = calibration_->find(key)) {
    offer.seconds = measured->seconds;
  } else if (const auto family = families_.find(family_of(key)); family != families_.end()) {
    const double size = std::log2(offer.seconds) - 0.5;  // a bin of the map is centred between two powers of two
    offer.seconds *= std::exp(ratio_at(family->second, size));
  } else {
    offer.seconds = seconds_at_rates(graph, node, offer.seconds);
  }
  return offer;
}

// Scales the backend's roofline to the measured rates: by the bandwidth if its traffic explains the offered seconds,
// else by the arithmetic.
double CalibratedDevice::seconds_at_rates(const Graph& graph, const Node& node, double offered) const {
  constexpr double kStart = 5e-6;  // of the offered seconds, what starting a kernel takes at most
  double traffic = 0;
  for (const auto* list : {&node.inputs, &node.outputs})
    for (const ValueId id : *list) traffic += static_cast<double>(graph.value(id).bytes());
  const bool knows_bytes = old_bytes_ > 0 && info_.bytes_per_second > 0;
  const double before = knows_bytes ? traffic / old_bytes_ : 0;
  const double after = knows_bytes ? traffic / info_.bytes_per_second : 0;
  if (knows_bytes && offered <= 1.05 * before + kStart) return std::max(offered - before, 0.0) + after;
  const double arithmetic = old_flops_ > 0 && info_.flops_per_second > 0 ? old_flops_ / info_.flops_per_second : 1;
  return std::max(offered * arithmetic, after);
}

}  // namespace plimsoll::engine
