// From a joint graph to one whose bytes and seconds are known: padding placed; epilogues, pooling and gradients of
// tables folded; element-wise chains fused; layouts and kernels chosen by asking the device, reorders added as nodes.
#pragma once

#include <string_view>

#include "device/device.h"
#include "graph/graph.h"

namespace plimsoll::engine {

// Name of a fused body whose parts share no computed value and may run at the same time.
inline constexpr std::string_view kGroupBody = "group";

struct LoweredGraph {
  Graph graph;
  std::vector<KernelOffer> kernels;  // one a node

  double seconds() const;
  int primitives() const;
};

Graph fold_padding(const Graph& graph, const Device& device);  // pad2d and crop2d into the convolution beside them
Graph pad_evenly(const Graph& graph, const Device& device);    // pads that differ on opposite sides out of convolutions
Graph fold_epilogues(const Graph& graph);       // bias_add and relu into the conv2d or matmul before them
Graph fold_bias_gradients(const Graph& graph);  // a bias's gradient into the weight gradient that reads the same values
Graph fold_pooling(const Graph& graph, const Device& device);        // max pooling into the convolution before it
Graph fold_row_gradients(const Graph& graph, const Device& device);  // a table's gradient into the table's update
Graph mask_from_normalised(const Graph& graph);  // the mask of a normalised relu's gradient, found again from its input
Graph fuse_elementwise(const Graph& graph, const Device& device);
Graph group_equal(const Graph& graph, const Device& device);  // equal element-wise nodes over many tensors
Graph group_moves(const Graph& graph, const Device& device);  // reorders of many values between the same two layouts
Result<LoweredGraph> choose_kernels(const Graph& graph, const Device& device);

Result<LoweredGraph> lower(Graph graph, const Device& device);

}  // namespace plimsoll::engine
