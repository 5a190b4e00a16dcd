// Describes a device to the planner, as plain data. levers, lower, plan and search use only this interface and depend
// on no backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::engine {

struct DeviceInfo {
  std::string name;             // "AMD EPYC, 2 threads"
  std::string kind;             // "cpu", "reference", "gpu"
  std::string memory = "host";  // the memory it computes in; "gpu:0" contains the card's ordinal
  Bytes memory_bytes = 0;       // of the whole device
  Bytes free_bytes = 0;         // bytes that this process may take; cgroup limits are considered
  int threads = 1;
  bool own_memory = false;     // the arena is in the device's own memory, and data are copied to it from the host
  bool memory_growth = false;  // the arena takes memory when a phase needs it, not all of it at the start
  bool has_bfloat16 = true;
  bool tf32 = false;    // inputs of float32 matrix products and convolutions are rounded to tf32
  std::string library;  // the library of its kernels: "oneDNN 2.6.3"
  std::string driver;   // the driver that runs them: "CUDA 13.0, cuDNN 91400"; "" if there is none or it is not here
  // Digest of the calibration that the kernels' seconds come from (device/calibration.h); "" without one.
  std::string calibration;
  // The roofline that the kernels' seconds are compared with: memory traffic, and arithmetic in float32 and in half
  // precision. 0: not known.
  double bytes_per_second = 0, flops_per_second = 0, half_flops_per_second = 0;
};

// What a machine reaches, measured. 0: not measured.
struct MachineRates {
  double flops_per_second = 0;  // float32
  double bytes_per_second = 0;  // read from memory plus written to memory
};

// A physical layout, named by the backend, and the bytes that a value needs in it.
struct Layout {
  std::string name;  // "" is row-major
  Bytes bytes = 0;   // 0 for row-major
};

// How one node would run.
struct KernelOffer {
  std::string kernel;
  std::vector<Layout> inputs, outputs;  // empty: all row-major
  Bytes workspace = 0;                  // bytes of scratch memory that the plan must reserve in the arena
  double seconds = 0;
  int primitives = 0;  // library objects that the kernel keeps; they add to the overhead outside the arena
  // Kernels with the same key share one set of primitives. Empty: this kernel shares none.
  std::string primitive_key = {};
};

// What bound phases keep outside the arena.
struct BoundCounts {
  int64_t nodes = 0;
  int64_t primitives = 0;  // distinct library objects

  BoundCounts& operator+=(const BoundCounts& other) {
    nodes += other.nodes;
    primitives += other.primitives;
    return *this;
  }
};

// Where the device prefers a convolution's zero padding. Lowering moves the zeros between the convolution's `pads` and
// a pad2d node before it.
enum class Padding : uint8_t {
  kAsWritten,  // where the graph has it
  kInside,     // in the convolution
  kOutside,    // in the pad2d, just enough to make the convolution's own pads equal on opposite sides
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Returns the preferred kernel for a node, or an error that says why there is none. A move between layouts is a
  // `reorder` node and is offered like any other node.
  virtual Result<KernelOffer> offer(const Graph& graph, const Node& node) const = 0;

  // Returns whether an element-wise or reduction op may be in the body of a fused node.
  virtual bool fuses(const Graph& graph, const Node& node) const = 0;
  // Returns whether equal element-wise nodes, or reorders, of different tensors are faster as one node; largest_group()
  // is how many at most.
  virtual bool groups(const Graph& /*graph*/, const Node& /*node*/) const { return false; }
  virtual size_t largest_group(const Graph& /*graph*/, const Node& /*node*/) const { return 1; }
  // Returns whether it is faster to compute a value twice than to write it and read it back.
  virtual bool recomputes_freely() const { return false; }
  // Returns whether the kernels of convolutions and matmul can add a bias and apply relu.
  virtual bool has_epilogues() const = 0;

  // Asked for conv2d and its gradients, depending on the pads of the node.
  virtual Padding padding(const Graph& /*graph*/, const Node& /*node*/) const { return Padding::kAsWritten; }

  // Bytes per second, in each direction, between the device's memory and pinned host memory. 0 if the device computes
  // in host memory.
  virtual double host_bytes_per_second() const { return 0; }

  // Published bound on the overhead, in whole MiB: what the process holds beyond arena and data buffers.
  virtual Bytes overhead_bound(const BoundCounts& counts) const = 0;
  // Published bound on what the process holds while it makes a plan of `nodes` nodes. 0 if the budget does not limit
  // the memory in which plans are made (a GPU's budget does not limit host memory).
  virtual Bytes planning_bound(int64_t /*nodes*/) const { return 0; }
};

}  // namespace plimsoll::engine
