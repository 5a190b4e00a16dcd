// Ops that move elements and hardly compute: one pass, no workspace.
#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kLargestImage = int64_t{1} << 30;  // elements: kernels count inside an image in 32 bits

// A transposition of each value, all in one kernel.
Status check_move(const NodeView& node, size_t i) {
  const std::string &from = node.in(i).layout, &to = node.attrs().text("layout");
  const std::string& named = from.empty() ? to : from;
  if (from != node.in(0).layout || named != kWeightLayout || !(from.empty() || to.empty()))
    return refuse(node, fmt::format("there is no way from layout '{}' to '{}'", from, to));
  PLIMSOLL_TRY(require_compute_input(node, i));
  PLIMSOLL_TRY(require_same_dtype(node, 0, i));
  const Shape& shape = node.in_shape(i);
  if (shape.rank() != 4) return refuse(node, fmt::format("only weights [kh,kw,i,o], not [{}]", to_text(shape)));
  if (shape.elements() > kLargestImage) return refuse(node, fmt::format("[{}] is too large", to_text(shape)));
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
    return refuse(node, "a copy is of one value");
  }
  if (node.inputs() > kMovesAtOnce) return refuse(node, fmt::format("{} values are too many", node.inputs()));
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

// A copy runs beside the nodes and takes its share of the memory's speed from them; whoever places it knows what they
// wait for it besides.
Result<KernelOffer> offer_copy(const Card& card, const NodeView& node) {
  const bool begins = node.inputs() == 1;
  return own_offer(node.node.op, 0, begins ? static_cast<double>(node.in(0).bytes()) / card.bytes_per_second : 0);
}

// Planned over its input; a copy where it is not.
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
