// Reductions other than sums, cumulative sums and products, and sorts.
#include <cmath>

#include "backends/cuda/axis/plan.h"
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kMostElements = int64_t{1} << 38;  // a launch has at most 2^31 - 1 blocks
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;

Status check_input(const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  const Shape& shape = node.in_shape(0);
  if (shape.elements() > kMostElements)
    return refuse(node, fmt::format("[{}] has more than 2^38 elements", to_text(shape)));
  if (shape.rank() > 0 && shape.elements() / shape.back() > kMostRows && shape.back() > 1)
    return refuse(node, fmt::format("[{}] has more than 2^31 - 1 rows", to_text(shape)));
  return {};
}

}  // namespace

Result<KernelOffer> offer_extreme(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_input(node));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  if (node.out_shape(0).elements() > kMostRows)
    return refuse(node, fmt::format("[{}] has more than 2^31 - 1 elements", to_text(node.out_shape(0))));
  const AxisReduction plan = plan_axis_reduction(node.in_shape(0), node.out_shape(0));
  double seconds = pass_seconds(card, node.traffic());
  for (size_t i = 1; i < plan.steps.size(); ++i) {
    const AxisStep& step = plan.steps[i];
    seconds += pass_seconds(card, 8.0 * static_cast<double>(step.outer * step.rows * step.columns));
  }
  return own_offer(node.node.op, plan.workspace, seconds);
}

Result<KernelOffer> offer_arg(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_input(node));
  PLIMSOLL_TRY(require_output(node, 0, DType::kInt32));
  if (node.out_shape(0).elements() > kMostRows)
    return refuse(node, fmt::format("[{}] has more than 2^31 - 1 elements", to_text(node.out_shape(0))));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

Result<KernelOffer> offer_cumulate(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_input(node));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  return own_offer(node.node.op, 0, pass_seconds(card, node.traffic()));
}

Result<KernelOffer> offer_sort(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_input(node));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  PLIMSOLL_TRY(require_output(node, 1, DType::kInt32));
  const int64_t n = node.in_shape(0).back(), rows = node.in_shape(0).elements() / n;
  const int64_t tiles = (n + kSortTileElements - 1) / kSortTileElements;
  if (rows * tiles > kMostRows)
    return refuse(node, fmt::format("[{}] has more than 2^31 - 1 tiles to sort", to_text(node.in_shape(0))));
  const RowSort sort{rows, n, node.out_shape(0).back(), false};
  // A pass over the keys per merge; the bitonic sort of a tile takes about as long as ten passes.
  const double keys = 16.0 * static_cast<double>(rows * n);
  const double merges = std::ceil(std::log2(static_cast<double>(tiles)));
  const double seconds = 10 * pass_seconds(card, node.traffic()) + merges * pass_seconds(card, 3 * keys);
  return own_offer(node.node.op, sort.workspace(), seconds);
}

}  // namespace plimsoll::engine::cuda
