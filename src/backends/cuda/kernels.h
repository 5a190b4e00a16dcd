// How each node would run on a card, and how it is bound there: one row per op. Offers (kernel, layouts, workspace,
// seconds) need neither a GPU nor its libraries: workspaces are granted by rules on shapes, and a binder takes the
// fastest engine inside the grant. So a plan made for a profile equals the one made on the card.
#pragma once

#include "backends/common/node_view.h"
#include "backends/cuda/card.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kWeightLayout = "ohwi";  // convolution weights as the libraries want them

// Launch and drain of one kernel inside a captured graph.
inline constexpr double kLaunchSeconds = 2.5e-6;

// A pass over memory with little arithmetic.
double pass_seconds(const Card& card, double bytes);
// Whichever of matrix work and traffic takes longer.
double matrix_seconds(const Card& card, DType dtype, double flops, double bytes, double efficiency);

struct Context;  // driver/context.h
using BoundKernel = Result<std::unique_ptr<Kernel>>;

struct KernelEntry {
  Result<KernelOffer> (*offer)(const Card& card, const NodeView& node);
  BoundKernel (*bind)(Context& context, const BoundNode& node);  // null where this was built without CUDA
};

// The row of an op, or null. Element-wise ops and channel sums have the row of `fused` (fused/forms.cpp lists them).
const KernelEntry* kernel_of(const std::string& op);

Padding best_padding(const NodeView& node);  // of convolutions

}  // namespace plimsoll::engine::cuda
