// The questions a backend answers, as plain data, so that levers, lower, plan and search need not know one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::engine {

struct DeviceInfo {
  std::string name;             // "AMD EPYC, 2 threads"
  std::string kind;             // "cpu", "reference", "gpu"
  std::string memory = "host";  // name of the memory it computes in; "gpu:0" with the card's ordinal
  Bytes memory_bytes = 0;       // of the whole device
  Bytes free_bytes = 0;         // what this process may take, limits of cgroups included
  int threads = 1;
  bool own_memory = false;     // the arena lies in the device's memory, and data come to it through the host's
  bool memory_growth = false;  // the arena takes room as phases need it, not all of it at the start
  bool has_bfloat16 = true;
  bool tf32 = false;    // float32 matrix work is rounded to it
  std::string library;  // what its kernels come from: "oneDNN 2.6.3"
};

// A physical layout in the backend's words, and the bytes a value takes in it.
struct Layout {
  std::string name;  // "" is row-major
  Bytes bytes = 0;   // 0 for row-major
};

// How one node would run.
struct KernelOffer {
  std::string kernel;
  std::vector<Layout> inputs, outputs;  // empty: all row-major
  Bytes workspace = 0;                  // scratch memory the plan must grant, from the arena
  double seconds = 0;
  int primitives = 0;  // library objects it keeps; they cost overhead outside the arena
};

// Where zeros around a convolution's image are best: lowering moves them between its `pads` and a pad2d before it.
enum class Padding : uint8_t {
  kAsWritten,  // wherever the graph has them
  kInside,     // in the convolution
  kOutside,    // as much of them outside as makes the convolution's own pads equal on opposite sides
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // The preferred kernel for a node of a graph, or a refusal that says why.
  virtual Result<KernelOffer> offer(const Graph& graph, const Node& node) const = 0;

  // Seconds to move a value between layouts, and its workspace: the offer for a `reorder` node is asked like any other.

  // Whether an element-wise or reduction op may stand in the body of a fused node.
  virtual bool fuses(const Graph& graph, const Node& node) const = 0;
  // Whether equal element-wise nodes, or reorders, of different tensors are better run as one, and how many at most.
  virtual bool groups(const Graph& /*graph*/, const Node& /*node*/) const { return false; }
  virtual size_t largest_group(const Graph& /*graph*/, const Node& /*node*/) const { return 1; }
  // Whether arithmetic is so cheap beside memory that a value is better computed twice than written and read.
  virtual bool recomputes_freely() const { return false; }
  // Whether conv2d and matmul take a bias and relu as their epilogue.
  virtual bool has_epilogues() const = 0;

  // For conv2d and its gradients, by the pads the node has.
  virtual Padding padding(const Graph& /*graph*/, const Node& /*node*/) const { return Padding::kAsWritten; }

  // Bytes a second, each way, between its own memory and pinned memory of the host; 0 where it computes in the host's.
  virtual double host_bytes_per_second() const { return 0; }

  // Published bound on what the process holds beyond arena and data buffers, in whole MiB.
  virtual Bytes overhead_bound(int primitives) const = 0;
  // Published bound on what the process holds while a plan of so many nodes is made; 0 where plans are made in other
  // memory than the budget's, the host's beside a card.
  virtual Bytes planning_bound(int64_t /*nodes*/) const { return 0; }
};

}  // namespace plimsoll::engine
