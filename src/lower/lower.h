// From a joint graph to one whose bytes and seconds are known: epilogues folded, element-wise chains fused, layouts and
// kernels chosen by asking the device, reorders added as nodes.
#pragma once

#include "device/device.h"
#include "graph/graph.h"

namespace plimsoll {

struct LoweredGraph {
  Graph graph;
  std::vector<KernelOffer> kernels;  // one a node

  double seconds() const;
  int primitives() const;
};

Graph fold_epilogues(const Graph& graph);       // bias_add and relu into the conv2d or matmul before them
Graph fold_bias_gradients(const Graph& graph);  // a bias's gradient into the weight gradient that reads the same values
Graph fuse_elementwise(const Graph& graph, const Device& device);
Result<LoweredGraph> choose_kernels(const Graph& graph, const Device& device);

Result<LoweredGraph> lower(const Graph& graph, const Device& device);

}  // namespace plimsoll
