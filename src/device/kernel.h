// A node bound to addresses: what a backend makes of a planned node, once, before step 0.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/memory.h"

namespace plimsoll::engine {

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run() = 0;  // on the CPU runs, on a GPU enqueues; allocates nothing
};

template <typename F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F f) : f_(std::move(f)) {}
  void run() override { f_(); }

 private:
  F f_;
};

template <typename F>
std::unique_ptr<Kernel> make_kernel(F f) {
  return std::make_unique<FunctionKernel<F>>(std::move(f));
}

struct BoundNode {
  const Graph& graph;
  const Node& node;
  std::string kernel;             // the name the offer gave
  std::span<void* const> inputs;  // one address a value
  std::span<void* const> outputs;
  void* workspace;
  Bytes workspace_bytes;
};

// Carries batches from the host into the input slots of a phase, while the device still computes on the batch before.
class Feed {
 public:
  struct Slot {
    void* device = nullptr;  // where the phase reads it
    Bytes bytes = 0;
  };
  virtual ~Feed() = default;
  // Host memory for the next batch, one address a slot; waits until an earlier batch has left it.
  virtual Result<std::span<void* const>> acquire(std::span<const Slot> slots) = 0;
  virtual Status submit() = 0;  // enqueues the copies; what is enqueued afterwards sees them
  virtual Status again() = 0;   // the batch submitted last, once more, from where it lies on the device
  virtual Bytes device_bytes() const = 0;
};

// Values read back while the device goes on: what was enqueued before request() is what they hold at wait().
class Readback {
 public:
  virtual ~Readback() = default;
  virtual Status request() = 0;
  virtual Result<std::span<const std::byte>> wait() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Device& device() const = 0;
  // Whether this process could hold so much of the device's memory now, what it holds already included; kOutOfMemory
  // says what is free and who holds the rest. Where memory may be promised before it is there, nothing is refused.
  virtual Status check_room(Bytes bytes) const;
  // Bytes of one memory: the device's own, or another that its copies reach, for values that wait there. kBadPlan for a
  // memory it does not know.
  virtual Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const = 0;
  virtual Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const = 0;

  // What the process held of this device's memory before this backend took any, where the device has memory of its
  // own: the caller's own allocations, and those of other backends.
  virtual Bytes held_before_bytes() const { return 0; }
  // What the process holds of this device's memory now and at most so far, as the keeper of that memory counts it.
  virtual Bytes held_bytes() const = 0;
  virtual Bytes peak_held_bytes() const = 0;
  virtual std::string counted_by() const = 0;  // that keeper: "NVML"

  // Makes the calling thread ready to use this backend: device and number of threads are settings of a thread.
  virtual void enter_thread() const {}

  // The kernels of a phase as one piece of work; they outlive it. Null: run them one by one.
  virtual Result<std::unique_ptr<Kernel>> record(std::span<const std::unique_ptr<Kernel>> kernels) const;
  // Waits for everything enqueued, and says what failed in it.
  virtual Status finish() const;
  // Null where memory is host-visible. `bytes` is the most one batch takes.
  virtual Result<std::unique_ptr<Feed>> open_feed(Bytes bytes) const;
  virtual Result<std::unique_ptr<Readback>> open_readback(const Memory& memory, Bytes offset, Bytes bytes) const;
};

inline tl::unexpected<Error> no_such_memory(Space space) {
  return fail(ErrorCode::kBadPlan,
              "the plan lays values in memory '" + to_text(space) + "', which this device does not reach");
}

inline Status Backend::check_room(Bytes) const {
  return {};
}
inline Result<std::unique_ptr<Kernel>> Backend::record(std::span<const std::unique_ptr<Kernel>>) const {
  return std::unique_ptr<Kernel>();
}
inline Status Backend::finish() const {
  return {};
}
inline Result<std::unique_ptr<Feed>> Backend::open_feed(Bytes) const {
  return std::unique_ptr<Feed>();
}
inline Result<std::unique_ptr<Readback>> Backend::open_readback(const Memory&, Bytes, Bytes) const {
  return std::unique_ptr<Readback>();
}

}  // namespace plimsoll::engine
