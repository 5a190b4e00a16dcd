// Offers for affine_image.
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

Result<KernelOffer> offer_affine_image(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_compute_input(node, 1));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  constexpr int64_t kMostElements = int64_t{1} << 30;  // kernels index within a sample with 32 bits
  const Shape& x = node.in_shape(0);
  if (node.node.op == "affine_image_grad")
    return refuse(node, "the gradient of a rotation, zoom, translation or shear has no kernel for GPUs yet");
  if (x.elements() / x[0] > kMostElements)
    return refuse(node, fmt::format("a sample of [{}] has more than 2^30 elements", to_text(x)));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
