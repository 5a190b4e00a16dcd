// Pooling by our own kernels. Each reads its input and writes its output once, and needs no workspace.
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kLargestImage = int64_t{1} << 30;  // elements: kernels index within an image with 32 bits

int64_t image_elements(const Shape& shape) {
  return shape.elements() / shape[0];
}

}  // namespace

Result<KernelOffer> offer_pooling(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  const bool grad = node.node.op.ends_with("_grad");
  const Shape& image = grad ? node.out_shape(0) : node.in_shape(0);
  const Shape& pooled = grad ? node.in_shape(0) : node.out_shape(0);
  if (image_elements(image) > kLargestImage || image_elements(pooled) > kLargestImage)
    return refuse(node, fmt::format("images of [{}] have more than 2^30 elements each", to_text(image)));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
