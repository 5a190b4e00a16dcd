// Ops that move elements with hardly any arithmetic: they read and write once and need no workspace.
#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kLargestImage = int64_t{1} << 30;  // elements: kernels index within an image with 32 bits

// A reorder transposes each value, all in one kernel.
Status check_move(const NodeView& node, size_t i) {
  const std::string &from = node.in(i).layout, &to = node.attrs().text("layout");
  const std::string& named = from.empty() ? to : from;
  if (from != node.in(0).layout || named != kWeightLayout || !(from.empty() || to.empty()))
    return refuse(node, fmt::format("layout '{}' cannot be converted to '{}'", from, to));
  PLIMSOLL_TRY(require_compute_input(node, i));
  PLIMSOLL_TRY(require_same_dtype(node, 0, i));
  const Shape& shape = node.in_shape(i);
  if (shape.rank() != 4 && shape.rank() != 5)
    return refuse(node, fmt::format("only weights [(kd,)kh,kw,i,o] can be converted, not [{}]", to_text(shape)));
  if (shape.elements() > kLargestImage)
    return refuse(node, fmt::format("[{}] has more than 2^30 elements", to_text(shape)));
  return {};
}

}  // namespace

Result<KernelOffer> offer_reorder(const Card& card, const NodeView& node) {
  const std::string &from = node.in(0).layout, &to = node.attrs().text("layout");
  KernelOffer offer = own_offer("copy", 0, pass_seconds(card, node.traffic()));
  if (from != to) {
    offer.kernel = "transpose";
    offer.seconds = pass_seconds(card, 1.5 * node.traffic());
  } else if (node.inputs() > 1) {
    return refuse(node, "a node without a layout change copies one value only");
  }
  if (node.inputs() > kMovesAtOnce)
    return refuse(node, fmt::format("{} values are too many, at most {}", node.inputs(), kMovesAtOnce));
  for (size_t i = 0; i < node.inputs(); ++i) {
    if (from != to) PLIMSOLL_TRY(check_move(node, i));
    const Bytes bytes = node.in(i).type.bytes();
    offer.inputs.push_back({from, from.empty() ? 0 : bytes});
    offer.outputs.push_back({to, to.empty() ? 0 : bytes});
  }
  return offer;
}

Result<KernelOffer> offer_image(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  for (const Shape* shape : {&node.in_shape(0), &node.out_shape(0)})
    if (shape->elements() / (*shape)[0] > kLargestImage)
      return refuse(node, fmt::format("images of [{}] have more than 2^30 elements each", to_text(*shape)));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

// A copy runs concurrently with other nodes and takes memory bandwidth from them. The time that nodes wait for the copy
// is counted by the code that places it.
Result<KernelOffer> offer_copy(const Card& card, const NodeView& node) {
  const bool begins = node.inputs() == 1;
  return own_offer(node.node.op, 0, begins ? static_cast<double>(node.in(0).bytes()) / card.bytes_per_second : 0);
}

// The plan usually places the view over its input; otherwise it is a copy.
Result<KernelOffer> offer_view(const Card&, const NodeView&) {
  return own_offer("view", 0, 0);
}

Result<KernelOffer> offer_cast(const Card& card, const NodeView& node) {
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

Result<KernelOffer> offer_move(const Card& card, const NodeView& node) {
  if (node.inputs() > 0) PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
