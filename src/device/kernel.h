// A node bound to addresses: what a backend makes of a planned node, once, before step 0.
#pragma once

#include <memory>
#include <span>

#include "device/device.h"

namespace plimsoll {

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run() = 0;  // allocates nothing
};

struct BoundNode {
  const Graph& graph;
  const Node& node;
  std::string kernel;             // the name the offer gave
  std::span<void* const> inputs;  // one address a value
  std::span<void* const> outputs;
  void* workspace;
  Bytes workspace_bytes;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Device& device() const = 0;
  virtual Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const = 0;
};

}  // namespace plimsoll
