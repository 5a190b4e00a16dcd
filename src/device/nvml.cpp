#include "device/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <limits>

namespace plimsoll::engine {
namespace {

// NVML's types, as its documentation describes them.
using Handle = struct NvmlDevice*;
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfo {  // of the functions _v2 and _v3
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
constexpr int kSuccess = 0;
constexpr unsigned kMostGpus = 64, kMostProcesses = 512;

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*memory)(Handle, MemoryInfo*) = nullptr;
  int (*utilization)(Handle, Utilization*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  int (*power_limit)(Handle, unsigned*) = nullptr;
  int (*processes)(Handle, unsigned*, ProcessInfo*) = nullptr;

  ~Functions() {
    if (library != nullptr) ::dlclose(library);
  }

  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }
};

Bytes GpuState::held_by_others() const {
  Bytes known = 0;
  for (const GpuProcess& process : processes) known += process.held.value_or(0);
  return std::max<Bytes>(0, used - known);
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
}

std::unique_ptr<Nvml> Nvml::open() {
  auto functions = std::make_unique<Functions>();
  functions->library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) return nullptr;
  const bool all = functions->find(functions->init, "nvmlInit_v2") &&
                   functions->find(functions->shutdown, "nvmlShutdown") &&
                   functions->find(functions->count, "nvmlDeviceGetCount_v2") &&
                   functions->find(functions->handle, "nvmlDeviceGetHandleByIndex_v2") &&
                   functions->find(functions->name, "nvmlDeviceGetName") &&
                   functions->find(functions->memory, "nvmlDeviceGetMemoryInfo");
  if (!all || functions->init() != kSuccess) return nullptr;
  // These may be missing in an old library; the figures are then left out.
  functions->find(functions->utilization, "nvmlDeviceGetUtilizationRates");
  functions->find(functions->power, "nvmlDeviceGetPowerUsage");
  functions->find(functions->power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  if (!functions->find(functions->processes, "nvmlDeviceGetComputeRunningProcesses_v3"))
    functions->find(functions->processes, "nvmlDeviceGetComputeRunningProcesses_v2");
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

std::vector<GpuState> Nvml::read() const {
  const Functions& nvml = *functions_;
  std::vector<GpuState> gpus;
  unsigned count = 0;
  if (nvml.count(&count) != kSuccess) return gpus;
  for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
    Handle device = nullptr;
    MemoryInfo memory{};
    if (nvml.handle(i, &device) != kSuccess || nvml.memory(device, &memory) != kSuccess) continue;
    GpuState gpu;
    gpu.index = static_cast<int>(i);
    gpu.memory = static_cast<Bytes>(memory.total);
    gpu.used = static_cast<Bytes>(memory.used);
    std::array<char, 128> name{};
    if (nvml.name(device, name.data(), name.size() - 1) == kSuccess) gpu.name = name.data();
    Utilization utilization{};
    if (nvml.utilization != nullptr && nvml.utilization(device, &utilization) == kSuccess)
      gpu.utilization = static_cast<int>(utilization.gpu);
    unsigned milliwatts = 0;
    if (nvml.power != nullptr && nvml.power(device, &milliwatts) == kSuccess) gpu.watts = milliwatts * 1e-3;
    if (nvml.power_limit != nullptr && nvml.power_limit(device, &milliwatts) == kSuccess)
      gpu.watt_limit = milliwatts * 1e-3;
    std::vector<ProcessInfo> processes(kMostProcesses);
    unsigned known = kMostProcesses;
    if (nvml.processes != nullptr && nvml.processes(device, &known, processes.data()) == kSuccess)
      for (unsigned p = 0; p < std::min(known, kMostProcesses); ++p) {
        const bool said = processes[p].used < (1ULL << 60);  // else "not available"
        gpu.processes.push_back({static_cast<int>(processes[p].pid),
                                 said ? std::optional(static_cast<Bytes>(processes[p].used)) : std::nullopt});
      }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace plimsoll::engine
