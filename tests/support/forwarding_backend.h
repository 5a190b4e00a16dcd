// A backend that does what another one does, to derive from for backends that differ from it in a call or two.
#pragma once

#include <memory>
#include <utility>

#include "device/kernel.h"

namespace plimsoll::engine::testing {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const Device& device() const override { return backend_->device(); }
  Status check_room(Bytes bytes) const override { return backend_->check_room(bytes); }
  Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const override {
    return backend_->reserve(space, bytes);
  }
  Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const override { return backend_->bind(node); }
  Bytes held_before_bytes() const override { return backend_->held_before_bytes(); }
  Bytes held_bytes() const override { return backend_->held_bytes(); }
  Bytes peak_held_bytes() const override { return backend_->peak_held_bytes(); }
  std::string counted_by() const override { return backend_->counted_by(); }
  Result<std::unique_ptr<Kernel>> record(std::span<const std::unique_ptr<Kernel>> kernels) const override {
    return backend_->record(kernels);
  }
  Status finish() const override { return backend_->finish(); }
  Result<std::unique_ptr<Feed>> open_feed(Bytes bytes) const override { return backend_->open_feed(bytes); }
  Result<std::unique_ptr<Readback>> open_readback(const Memory& memory, Bytes offset, Bytes bytes) const override {
    return backend_->open_readback(memory, offset, bytes);
  }

 private:
  std::unique_ptr<Backend> backend_;
};

}  // namespace plimsoll::engine::testing
