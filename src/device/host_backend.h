// Shared by backends that compute in host memory: they reserve the arena there, and the operating system counts the
// bytes that the process holds.
#pragma once

#include "device/host_memory.h"
#include "device/kernel.h"
#include "device/process_memory.h"

namespace plimsoll::engine {

class HostBackend : public Backend {
 public:
  Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const override {
    if (space != Space::kDevice && space != Space::kHost) return no_such_memory(space);
    return HostMemory::reserve(bytes);
  }
  Bytes held_bytes() const override { return resident_bytes(); }
  Bytes peak_held_bytes() const override { return peak_resident_bytes(); }
  std::string counted_by() const override { return "the operating system (VmHWM)"; }
};

}  // namespace plimsoll::engine
