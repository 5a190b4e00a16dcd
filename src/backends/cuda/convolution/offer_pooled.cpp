// Offers the fused kernels for convolutions over few input channels with a max pooling after them. If the offer is
// refused, convolution and pooling stay two nodes.
#include "backends/cuda/convolution/pooled.h"
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {

Result<KernelOffer> offer_pooled_convolution(const Card& card, const NodeView& node) {
  // Share of the tensor cores' peak: im2col rows of a few dozen elements leave most of a tile idle.
  constexpr double kEfficiency = 0.08;
  PLIMSOLL_TRY(require_compute_input(node, 0));
  const Convolution c(node);
  const bool weight_grad = node.node.op == "conv2d_pooled_weight_grad";
  const PooledPlan plan = plan_pooled(card, c, node.attrs().list("pool"), weight_grad);
  if (!plan.possible) return refuse(node, "there is no kernel for this card and these sizes");
  KernelOffer offer =
      own_offer(kPooledKernel, granted(plan.workspace),
                matrix_seconds(card, c.dtype, flops_of(node.graph, node.node), node.traffic(), kEfficiency));
  offer.inputs.resize(node.inputs());
  offer.outputs.resize(node.outputs());
  Layout& weights = weight_grad ? offer.outputs[0] : offer.inputs[1];
  weights = {kWeightLayout, c.weight_elements() * size_of(c.dtype)};
  return offer;
}

}  // namespace plimsoll::engine::cuda
