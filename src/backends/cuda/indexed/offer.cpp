// Reads and sums by index, iota and one_hot. scatter_add sorts, as the gradient of an embedding does, and
// take_along_grad adds along each column in order, so results do not depend on timing.
#include "backends/cuda/indexed/workspace.h"
#include "backends/cuda/own_kernel.h"
#include "ops/strided.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30, kMostElements = int64_t{1} << 38;

Status check_sizes(const NodeView& node) {
  for (const auto* list : {&node.node.inputs, &node.node.outputs})
    for (ValueId id : *list)
      if (const Shape& shape = node.graph.type(id).shape; shape.elements() > kMostElements)
        return refuse(node, fmt::format("[{}] has more than 2^38 elements", to_text(shape)));
  return {};
}

Result<KernelOffer> offer_scatter(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  const AroundAxis y(node.out_shape(0), static_cast<size_t>(node.attrs().integer("axis")));
  const int64_t count = node.in_shape(1).elements();
  if (y.outer * count > kMostTokens || y.outer * y.size > kMostTokens)
    return refuse(node, fmt::format("{} slices with {} ids are more than 2^30 rows", y.outer, count));
  const ScatterAdd plan = plan_scatter_add(y.outer, y.size, y.inner, count);
  const double ids = 4 * static_cast<double>(y.outer * count);
  const double sorting = 2 * plan.grad.passes * pass_seconds(card, ids) + 3 * kLaunchSeconds;
  return own_offer(node.node.op, plan.bytes(), sorting + pass_seconds(card, node.traffic()));
}

}  // namespace

Result<KernelOffer> offer_indexed(const Card& card, const NodeView& node) {
  const std::string& op = node.node.op;
  PLIMSOLL_TRY(check_sizes(node));
  if (op == "iota" || op == "one_hot") {
    if (node.out_dtype(0) != DType::kInt32) PLIMSOLL_TRY(require_compute_output(node, 0));
    return own_offer(op, 0, pass_seconds(card, node.traffic()));
  }
  if (op == "scatter_add") return offer_scatter(card, node);
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  if (op != "take_along_grad")
    return own_offer(op, 0, pass_seconds(card, 2 * static_cast<double>(node.out(0).bytes() + node.in(1).bytes())));
  PLIMSOLL_TRY(require_compute_input(node, 0));
  // Half-precision results are added up in float32.
  const Bytes sums = is_half(node.in_dtype(0)) ? 4 * node.out_shape(0).elements() : 0;
  return own_offer(op, sums, pass_seconds(card, node.traffic() + 2 * static_cast<double>(sums)) + 2 * kLaunchSeconds);
}

}  // namespace plimsoll::engine::cuda
