// The arena of a device that computes in host memory. It reserves address space at the start. Pages become resident
// when they are first written.
#pragma once

#include <memory>

#include "device/memory.h"

namespace plimsoll::engine {

class HostMemory : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> reserve(Bytes bytes);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() override;

  std::byte* at(Bytes offset) const override { return base_ + offset; }
  bool host_visible() const override { return true; }
  Bytes bytes() const override { return bytes_; }
  Bytes held_bytes() const override;  // bytes of it that are resident

  Status resize(Bytes bytes, Bytes keep) override;
  Status write(Bytes offset, const void* from, Bytes bytes) override;
  Status read(Bytes offset, void* to, Bytes bytes) const override;
  Status fill(Bytes offset, std::byte value, Bytes bytes) override;
  void poke(std::span<const Poke> pokes) override;

 protected:
  HostMemory(std::byte* base, Bytes bytes) : base_(base), bytes_(bytes) {}
  static Result<std::byte*> map(Bytes bytes);

 private:
  std::byte* base_;
  Bytes bytes_;
};

}  // namespace plimsoll::engine
