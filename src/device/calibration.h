// A calibration: how long kernels take on one device, and what its machine reaches. `plimsoll doctor --calibrate`
// measures it; planning only reads it. It is a text file:
//
//   plimsoll calibration 1
//   digest 32 hexadecimal digits, of all lines below
//   device AMD EPYC, 2 threads
//   kind cpu
//   library oneDNN 2.6.3
//   driver
//   version 0.1.0
//   flops_per_second 2.4e+11
//   bytes_per_second 3.1e+10
//   SECONDS OFFERED KEY        one line per kernel, sorted by key
//
// KEY is kernel_key(). OFFERED are the seconds that the backend offers without a calibration, so that the ratio of the
// two can be applied to kernels that were not measured. The digest finds damage only; whoever may write the file can
// also write a digest, so every number is checked, and wrong numbers can only make a plan slow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace plimsoll::engine {

struct KernelTime {
  std::string key;
  double seconds = 0;  // measured
  double offered = 0;  // by the backend
};

class Calibration {
 public:
  // Limits of a file. They also bound the memory that a calibration takes while a plan is made.
  static constexpr Bytes kMostBytes = 2 * kMiB;
  static constexpr size_t kMostKey = 8192;
  static constexpr double kLeastSeconds = 1e-9, kMostSeconds = 3600;

  // `version` is that of the kernels: Plimsoll's own.
  Calibration(const DeviceInfo& device, std::string_view version);
  // Fails with kBadConfig, and says in which line, unless the whole text is right. `from` is its name in messages.
  static Result<Calibration> parse(std::string_view text, const std::string& from);

  // Adds measurements. They replace those of the same kernels. A measurement outside the limits is left out. If the
  // file would become too large, older measurements are dropped. Returns how many of `times` were added.
  size_t add(const std::vector<KernelTime>& times);
  void set_rates(const MachineRates& rates);

  std::string text() const;
  const std::string& digest() const { return digest_; }
  const MachineRates& rates() const { return rates_; }
  const std::vector<KernelTime>& kernels() const { return kernels_; }  // sorted by key
  const KernelTime* find(std::string_view key) const;

  // Returns how the calibrated device differs from this one, or "". A device that is not in this machine has no driver,
  // so its driver is not compared.
  std::string difference(const DeviceInfo& device, std::string_view version) const;

 private:
  Calibration() = default;
  std::string body() const;
  void update_digest();

  std::string device_, kind_, library_, driver_, version_;
  MachineRates rates_;
  std::vector<KernelTime> kernels_;
  std::string digest_;
};

}  // namespace plimsoll::engine
