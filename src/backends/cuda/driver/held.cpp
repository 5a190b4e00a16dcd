#include "backends/cuda/driver/held.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/libraries.h"

namespace plimsoll::engine::cuda {
namespace {

Bytes used_of(const Nvml& nvml, NvmlDevice device) {
  NvmlMemory memory{};
  return nvml.memory_info(device, &memory) == kNvmlSuccess ? static_cast<Bytes>(memory.total - memory.free) : 0;
}

// The bytes that the driver's process list reports for this process, or -1 if it is not listed.
Bytes listed(const Nvml& nvml, NvmlDevice device) {
  std::vector<NvmlProcess> processes(64);
  auto count = static_cast<unsigned>(processes.size());
  if (nvml.running_processes(device, &count, processes.data()) != kNvmlSuccess) return -1;
  for (unsigned i = 0; i < count && i < processes.size(); ++i)
    if (processes[i].pid == static_cast<unsigned>(getpid()) && processes[i].used_bytes != ~0ULL)
      return static_cast<Bytes>(processes[i].used_bytes);
  return -1;
}

NvmlDevice nvml_device(const Nvml& nvml, int ordinal) {
  char bus_id[32] = {};
  NvmlDevice device = nullptr;
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, ordinal) != cudaSuccess || nvml.init() != kNvmlSuccess ||
      nvml.device_by_pci_bus_id(bus_id, &device) != kNvmlSuccess)
    return nullptr;
  return device;
}

}  // namespace

CardMemory card_memory(int ordinal) {
  CardMemory memory;
  const auto nvml = load_nvml();
  const NvmlDevice device = nvml ? nvml_device(**nvml, ordinal) : nullptr;
  if (device == nullptr) return memory;
  NvmlMemory now{};
  if ((*nvml)->memory_info(device, &now) == kNvmlSuccess) {
    memory.free = static_cast<Bytes>(now.free);
    memory.total = static_cast<Bytes>(now.total);
  }
  std::vector<NvmlProcess> processes(64);
  auto count = static_cast<unsigned>(processes.size());
  if ((*nvml)->running_processes(device, &count, processes.data()) != kNvmlSuccess) return memory;
  for (unsigned i = 0; i < count && i < processes.size(); ++i) {
    if (processes[i].pid == static_cast<unsigned>(getpid())) continue;
    char name[256] = {};
    if ((*nvml)->process_name != nullptr) (void)(*nvml)->process_name(processes[i].pid, name, sizeof name);
    memory.holders.push_back(fmt::format(
        "{}process {}{}", name[0] != 0 ? std::string(name) + ", " : "", processes[i].pid,
        processes[i].used_bytes == ~0ULL ? "" : ": " + format_bytes(static_cast<Bytes>(processes[i].used_bytes))));
  }
  return memory;
}

Result<HeldMemory> HeldMemory::open(int ordinal) {
  HeldMemory held;
  held.state_ = std::make_shared<State>();
  const auto nvml = load_nvml();
  if (const NvmlDevice device = nvml ? nvml_device(**nvml, ordinal) : nullptr; device != nullptr) {
    held.state_->device = device;
    held.state_->used_before = used_of(**nvml, device);
    held.state_->counted_by = "NVML";
  } else {
    held.state_->counted_by = "cudaMemGetInfo including other processes, because NVML is missing";
  }
  // If the driver already lists this process, an earlier backend or the program itself uses the GPU. If it does not,
  // now() counts from this point on.
  if (held.state_->device != nullptr)
    held.state_->before = std::max<Bytes>(listed(**nvml, static_cast<NvmlDevice>(held.state_->device)), 0);
  return held;
}

Bytes HeldMemory::now() const {
  if (state_ == nullptr) return 0;
  Bytes bytes = -1;
  if (state_->device != nullptr) {
    const Nvml& nvml = **load_nvml();
    auto* device = static_cast<NvmlDevice>(state_->device);
    bytes = listed(nvml, device);
    if (bytes < 0) {
      state_->counted_by = "NVML from the card's free memory, because the driver does not list this process";
      bytes = used_of(nvml, device) - state_->used_before;
    }
  } else {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) bytes = static_cast<Bytes>(total - free) - state_->used_before;
  }
  bytes = std::max<Bytes>(bytes, 0);
  state_->peak = std::max(state_->peak, bytes);
  return bytes;
}

Bytes HeldMemory::peak() const {
  now();
  return state_->peak;
}

}  // namespace plimsoll::engine::cuda
