// What the driver says of NVIDIA GPUs, through NVML, which is loaded at run time: a machine without a GPU lacks it.
// Run against a library that stands in for NVML in tests, and on an H200 with driver 580.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

struct GpuProcess {
  int pid = 0;                // as the host counts; in a container it may name nothing
  std::optional<Bytes> held;  // the driver does not say it under WSL, MIG and vGPU
};

struct GpuState {
  int index = 0;
  std::string name;
  Bytes memory = 0, used = 0;
  std::optional<int> utilization;  // percent of the time
  std::optional<double> watts, watt_limit;
  std::vector<GpuProcess> processes;

  Bytes held_by_others() const;  // used, but by none of `processes`: of hidden processes, and of the driver
};

class Nvml {
 public:
  static std::unique_ptr<Nvml> open();  // null if there is no library or no driver
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<GpuState> read() const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace plimsoll::engine
