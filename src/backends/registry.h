// The list of backends: which ones this build contains, whether a backend can be used on this machine and if not why,
// and how to open it. Callers look a backend up by name and include no backend header; the entries are in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernel.h"

namespace plimsoll::engine {

// The device options a user can set. Each backend reads only the ones that apply to it.
struct BackendOptions {
  int threads = 1;             // number of CPU threads
  int ordinal = 0;             // the N of gpu:N
  bool tf32 = true;            // allow float32 GEMMs and convolutions to round to tf32
  bool memory_growth = false;  // allocate device memory as phases need it, not all at the start
  // For tests on a GPU (see GpuOptions in cuda.h): choose kernels as for a card of this compute capability, and force
  // this convolution algorithm. On the CPU, "small-pieces" cuts nodes in half precision into a few samples.
  int as_capability = 0;
  std::string way = {};
};

// A device that a backend found, for `plimsoll doctor`. Fields that do not apply to the device are empty or 0.
struct DeviceDescription {
  std::string device;  // in the form --device takes, e.g. "gpu:0"
  std::string name;
  std::string compute_capability;  // "9.0"
  bool has_bfloat16 = false;
  Bytes memory_bytes = 0, free_bytes = 0;
  double host_bytes_per_second = 0;
  std::vector<std::string> holders;  // "python3, process 4711: 12.3 GiB"
};

struct BackendDescription {
  std::vector<DeviceDescription> devices;
  std::vector<Error> missing;  // missing libraries, each with a remedy; if there is no device, the first entry says why
};

struct BackendEntry {
  const char* name;       // "reference", "cpu", "gpu"
  DType floating;         // floating-point type of the graphs this backend computes
  bool built;             // if false, available() returns the reason and open() must not be called
  Status (*available)();  // whether open() can work on this machine; allocates no device memory
  Result<std::unique_ptr<Backend>> (*open)(const BackendOptions& options);
  BackendDescription (*describe)();
};

// Ordered from slowest to fastest.
std::span<const BackendEntry> backends();
const BackendEntry& backend_named(std::string_view name);  // `name` must be one of them

// Opens the backend `name`, or returns why this build does not contain it.
Result<std::unique_ptr<Backend>> open_backend(std::string_view name, const BackendOptions& options);

}  // namespace plimsoll::engine
