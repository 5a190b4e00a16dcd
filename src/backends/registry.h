// The backends of Plimsoll: which are in this build, which can be used on this machine or why not, and how one is
// opened. Callers ask here by name and know no backend; the rows stand in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernel.h"

namespace plimsoll::engine {

// What a user chooses about a device. A backend reads what concerns it.
struct BackendOptions {
  int threads = 1;             // of the CPU
  int ordinal = 0;             // N of gpu:N
  bool tf32 = true;            // whether float32 matrix work may be rounded to tf32
  bool memory_growth = false;  // whether memory is taken as phases need it
  // For tests, on a GPU (GpuOptions in cuda.h): kernels as for a card of this compute capability, convolutions this
  // way.
  int as_capability = 0;
  std::string way = {};
};

// A device a backend found, for `doctor`. What it does not have is empty or 0.
struct DeviceDescription {
  std::string device;  // as --device takes it: "gpu:0"
  std::string name;
  std::string compute_capability;  // "9.0"
  bool has_bfloat16 = false;
  Bytes memory_bytes = 0, free_bytes = 0;
  double host_bytes_per_second = 0;
  std::vector<std::string> holders;  // "python3, process 4711: 12.3 GiB"
};

struct BackendDescription {
  std::vector<DeviceDescription> devices;
  std::vector<Error> missing;  // each with what installs it; the first says why there is no device where there is none
};

struct BackendEntry {
  const char* name;       // "reference", "cpu", "gpu"
  DType floating;         // of the graphs it computes
  bool built;             // false: available() says why, and open() must not be called
  Status (*available)();  // whether it can be opened on this machine; takes no memory of a device
  Result<std::unique_ptr<Backend>> (*open)(const BackendOptions& options);
  BackendDescription (*describe)();
};

// In the order in which the fastest comes last.
std::span<const BackendEntry> backends();
const BackendEntry& backend_named(std::string_view name);  // which must be one

// Opens the backend `name`, or says why this build has none.
Result<std::unique_ptr<Backend>> open_backend(std::string_view name, const BackendOptions& options);

}  // namespace plimsoll::engine
