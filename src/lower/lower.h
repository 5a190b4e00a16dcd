// Lowers a joint graph to one whose bytes and seconds are known. It places padding, folds epilogues, pooling and
// embedding gradients, fuses element-wise chains, chooses layouts and kernels by asking the device, and adds reorder
// nodes.
#pragma once

#include <string_view>

#include "device/device.h"
#include "graph/graph.h"

namespace plimsoll::engine {

// Name of a fused body whose parts share no computed value and may run at the same time.
inline constexpr std::string_view kGroupBody = "group";
inline constexpr size_t kMostFusedMembers = 24;  // bounds the scratch memory of a fused kernel

struct LoweredGraph {
  Graph graph;
  std::vector<KernelOffer> kernels;  // one per node

  double seconds() const;
  int primitives() const;  // distinct ones
};

// Folds pad2d and crop2d into the convolution next to them.
Graph fold_padding(const Graph& graph, const Device& device);
// Moves padding out of convolutions whose pads differ on opposite sides.
Graph pad_evenly(const Graph& graph, const Device& device);
// Folds bias_add and relu into the convolution or matmul before them.
Graph fold_epilogues(const Graph& graph);
// Folds a bias gradient into the weight gradient that reads the same values.
Graph fold_bias_gradients(const Graph& graph);
// Folds max pooling into the convolution before it.
Graph fold_pooling(const Graph& graph, const Device& device);
// Folds the gradient of an embedding into its update.
Graph fold_row_gradients(const Graph& graph, const Device& device);
// Computes the mask of relu(batch_norm_apply(x))'s gradient from x.
Graph mask_from_normalised(const Graph& graph);
Graph fuse_elementwise(const Graph& graph, const Device& device);
// Groups equal element-wise nodes over many tensors.
Graph group_equal(const Graph& graph, const Device& device);
// Groups reorders of many values between the same two layouts.
Graph group_moves(const Graph& graph, const Device& device);
Result<LoweredGraph> choose_kernels(const Graph& graph, const Device& device);

Result<LoweredGraph> lower(Graph graph, const Device& device);

}  // namespace plimsoll::engine
