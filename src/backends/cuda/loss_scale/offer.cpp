// The parts of loss scaling that are not element-wise (unscale and keep_if are): one count over all gradients, and
// scalars.
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/reduce/pieces.h"

namespace plimsoll::engine::cuda {

Result<KernelOffer> offer_count_not_finite(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_output(node, 0, DType::kFloat32));
  int64_t blocks = 0;
  for (size_t i = 0; i < node.inputs(); ++i) {
    PLIMSOLL_TRY(require_compute_input(node, i));
    blocks += count_blocks(node.in_shape(i).elements());
  }
  return own_offer(node.node.op, blocks * static_cast<Bytes>(sizeof(uint32_t)), pass_seconds(card, node.traffic()));
}

Result<KernelOffer> offer_loss_scale(const Card& card, const NodeView& node) {
  for (size_t i = 0; i < node.inputs(); ++i)
    if (is_floating(node.in_dtype(i))) PLIMSOLL_TRY(require_input(node, i, DType::kFloat32));
  if (node.node.op == "count_periods") PLIMSOLL_TRY(require_output(node, 1, DType::kFloat32));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
