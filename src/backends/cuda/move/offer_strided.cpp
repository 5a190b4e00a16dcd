// transpose, strided_slice, pad and their gradients: they read and write once and need no workspace.
#include "backends/cuda/move/strided.h"
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kMostElements = int64_t{1} << 38;  // a launch has at most 2^31 - 1 blocks of 256 threads

Status check_sizes(const NodeView& node) {
  for (const Shape* shape : {&node.in_shape(0), &node.out_shape(0)})
    if (shape->elements() > kMostElements)
      return refuse(node, fmt::format("[{}] has more than 2^38 elements", to_text(*shape)));
  return {};
}

Result<KernelOffer> offer_view_copy(const Card& card, const NodeView& node, const StridedView& view) {
  PLIMSOLL_TRY(check_sizes(node));
  const double bytes = 2.0 * static_cast<double>(node.out(0).bytes());
  if (tiled_transpose(view)) return own_offer("transpose:tiles", 0, pass_seconds(card, 1.2 * bytes));
  if (!copy_axes(view)) return refuse(node, "more than 8 dimensions that cannot be merged");
  return own_offer(node.node.op, 0, pass_seconds(card, bytes));
}

}  // namespace

Result<KernelOffer> offer_transpose(const Card& card, const NodeView& node) {
  return offer_view_copy(card, node, transposed_view(node.in_shape(0), node.attrs().list("perm")));
}

Result<KernelOffer> offer_strided_slice(const Card& card, const NodeView& node) {
  return offer_view_copy(card, node, sliced_view(node.in_shape(0), node.attrs()));
}

Result<KernelOffer> offer_strided_slice_grad(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_sizes(node));
  if (collapsed(sliced_view(node.out_shape(0), node.attrs())).dims.size() > static_cast<size_t>(kStridedAxes))
    return refuse(node, "more than 8 dimensions that cannot be merged");
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()) + kLaunchSeconds);
}

Result<KernelOffer> offer_pad(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_sizes(node));
  const bool grad = node.node.op == "pad_grad";
  if (grad) PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  if (!padding_of(grad ? node.out_shape(0) : node.in_shape(0), node.attrs()))
    return refuse(node, "more than 8 dimensions that cannot be merged");
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
