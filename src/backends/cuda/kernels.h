// How each node would run on a card: kernel, layouts, workspace and seconds. Answers need neither a GPU nor its
// libraries: workspaces are granted by rules on shapes, and the runtime takes the fastest engine inside the grant. So
// a plan made for a profile equals the one made on the card.
#pragma once

#include "backends/cuda/card.h"
#include "device/device.h"

namespace plimsoll::cuda {

// A node with short ways to what rules and binders ask.
struct NodeView {
  const Graph& graph;
  const Node& node;

  const Value& in(size_t i) const { return graph.value(node.inputs[i]); }
  const Value& out(size_t i) const { return graph.value(node.outputs[i]); }
  const Shape& in_shape(size_t i) const { return in(i).type.shape; }
  const Shape& out_shape(size_t i) const { return out(i).type.shape; }
  DType in_dtype(size_t i) const { return in(i).type.dtype; }
  DType out_dtype(size_t i) const { return out(i).type.dtype; }
  size_t inputs() const { return node.inputs.size(); }
  size_t outputs() const { return node.outputs.size(); }
  const Attrs& attrs() const { return node.attrs; }
  double traffic() const;  // bytes of all inputs and outputs: one pass over each
};

inline constexpr const char* kWeightLayout = "ohwi";  // convolution weights as the libraries want them

// Launch and drain of one kernel inside a captured graph.
inline constexpr double kLaunchSeconds = 2.5e-6;

// A pass over memory with little arithmetic.
double pass_seconds(const Card& card, double bytes);
// Whichever of matrix work and traffic takes longer.
double matrix_seconds(const Card& card, DType dtype, double flops, double bytes, double efficiency);

using Rule = Result<KernelOffer> (*)(const Card& card, const NodeView& node);

Result<KernelOffer> convolution_rule(const Card& card, const NodeView& node);         // conv2d and its two gradients
Result<KernelOffer> pooled_convolution_rule(const Card& card, const NodeView& node);  // with max pooling behind it
Padding padding_rule(const NodeView& node);                                           // of convolutions
Result<KernelOffer> matmul_rule(const Card& card, const NodeView& node);
Result<KernelOffer> attention_rule(const Card& card, const NodeView& node);
Result<KernelOffer> fused_rule(const Card& card, const NodeView& node);  // element-wise ops, channel sums, `fused`
Result<KernelOffer> pooling_rule(const Card& card, const NodeView& node);
Result<KernelOffer> rowwise_rule(const Card& card, const NodeView& node);     // softmax, layer_norm, losses, match
Result<KernelOffer> reduce_rule(const Card& card, const NodeView& node);      // to scalars, and reduce_to over any axes
Result<KernelOffer> loss_scale_rule(const Card& card, const NodeView& node);  // what of it is no pass
Result<KernelOffer> move_rule(const Card& card, const NodeView& node);  // concat, slice, pad, upsample, fill, reorder
Result<KernelOffer> embedding_rule(const Card& card,
                                   const NodeView& node);               // embedding, updates of its table from rows
Result<KernelOffer> copy_rule(const Card& card, const NodeView& node);  // to the host's memory and back

// The family of an op, or null.
Rule rule_for(const std::string& op);

}  // namespace plimsoll::cuda
