// The interface of a backend. Before step 0 it binds each planned node to addresses, which makes a Kernel.
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
  virtual void run() = 0;  // runs on the CPU, enqueues on a GPU; does not allocate
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
  std::string kernel;             // KernelOffer::kernel
  std::span<void* const> inputs;  // one address per value
  std::span<void* const> outputs;
  void* workspace;
  Bytes workspace_bytes;
};

// A node whose addresses are not known yet.
struct UnboundNode {
  const Graph& graph;
  const Node& node;
};

// Copies batches from the host into the input slots of a phase while the device still computes on the previous batch.
class Feed {
 public:
  struct Slot {
    void* device = nullptr;  // the address that the phase reads
    Bytes bytes = 0;
  };
  virtual ~Feed() = default;
  // Returns host memory for the next batch, one address per slot. Waits until an earlier batch in it has been copied.
  virtual Result<std::span<void* const>> acquire(std::span<const Slot> slots) = 0;
  virtual Status submit() = 0;  // enqueues the copies; work enqueued later sees them
  virtual Status again() = 0;   // feeds the last submitted batch again, from its copy on the device
  virtual Bytes device_bytes() const = 0;
};

// Reads values back while the device continues. wait() returns the values as of the work enqueued before request().
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
  // Checks whether this process could now hold `bytes` of the device's memory, including what it already holds. Fails
  // with kOutOfMemory and says how much is free and which processes hold the rest. Never fails on devices that may
  // promise more memory than they have (overcommit).
  virtual Status check_room(Bytes bytes) const;
  // Reserves bytes in a memory space: the device's own, or another one that its copies reach, for offloaded values.
  // Fails with kBadPlan for a space that the device does not know.
  virtual Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const = 0;
  // Called with all nodes of a plan before they are bound, so that a backend can compile several of them at a time.
  // What goes wrong here is reported by bind().
  virtual void prepare(std::span<const UnboundNode> /*nodes*/) const {}
  virtual Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const = 0;

  // Bytes of this device's own memory that the process held before this backend took any: allocations of the caller and
  // of other backends. 0 if the device has no memory of its own.
  virtual Bytes held_before_bytes() const { return 0; }
  // Bytes of this device's memory that the process holds now, and the highest number so far, as the operating system or
  // the driver counts them.
  virtual Bytes held_bytes() const = 0;
  virtual Bytes peak_held_bytes() const = 0;
  virtual std::string counted_by() const = 0;  // the source of these numbers: "NVML"

  // Makes the calling thread ready to use this backend: device and number of threads are settings of a thread.
  virtual void enter_thread() const {}
  // Measures the machine for a calibration, in about 0.1 s.
  virtual MachineRates measure_rates() const { return {}; }

  // Records the kernels of a phase as one kernel (a CUDA graph). They must outlive it. Returns null if they must run
  // one by one.
  virtual Result<std::unique_ptr<Kernel>> record(std::span<const std::unique_ptr<Kernel>> kernels) const;
  // Waits for all enqueued work. Fails if any of it failed.
  virtual Status finish() const;
  // Returns null if the device's memory is host-visible. `bytes` is the size of the largest batch.
  virtual Result<std::unique_ptr<Feed>> open_feed(Bytes bytes) const;
  virtual Result<std::unique_ptr<Readback>> open_readback(const Memory& memory, Bytes offset, Bytes bytes) const;
};

inline tl::unexpected<Error> no_such_memory(Space space) {
  return fail(ErrorCode::kBadPlan,
              "the plan puts values in memory '" + to_text(space) + "', which this device cannot access");
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
