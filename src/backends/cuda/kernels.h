// One entry per op: how a node would run on a card (the offer: kernel, layouts, workspace, seconds) and how it is bound
// there. Offers need neither a GPU nor its libraries: workspace sizes follow from shapes by fixed rules, and binding
// picks the fastest engine that fits into that workspace. So a plan made from a card profile equals the plan made on
// the card.
#pragma once

#include "backends/common/node_view.h"
#include "backends/cuda/card.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kWeightLayout = "ohwi";  // convolution weights as the libraries want them: [o][h][w][i]

// Time to launch and drain one kernel inside a captured graph.
inline constexpr double kLaunchSeconds = 2.5e-6;

// Seconds of a kernel that is bound by memory traffic.
double pass_seconds(const Card& card, double bytes);
// The longer of matrix arithmetic and memory traffic.
double matrix_seconds(const Card& card, DType dtype, double flops, double bytes, double efficiency);

struct Context;  // driver/context.h
using BoundKernel = Result<std::unique_ptr<Kernel>>;

struct KernelEntry {
  Result<KernelOffer> (*offer)(const Card& card, const NodeView& node);
  BoundKernel (*bind)(Context& context, const BoundNode& node);  // null in builds without CUDA
};

// The entry of an op, or null. Element-wise ops and channel sums share the entry of `fused` (fused/forms.cpp lists
// them).
const KernelEntry* kernel_of(const std::string& op);

Padding best_padding(const NodeView& node);  // where lowering should put a convolution's padding

}  // namespace plimsoll::engine::cuda
