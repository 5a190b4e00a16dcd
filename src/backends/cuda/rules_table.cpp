// Rows of a table by number, and the gradient of the table.
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/table_plan.h"

namespace plimsoll::cuda {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

// A table in float32 may give rows in the compute dtype, and take its gradient from there.
Status check(const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_input(node, 1, DType::kInt32));
  PLIMSOLL_TRY(require_compute_output(node, 0));
  if (node.in_dtype(0) != DType::kFloat32 && node.out_dtype(0) != DType::kFloat32)
    PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  if (node.in_shape(1).elements() > kMostTokens)
    return refuse(node, fmt::format("[{}] has more than 2^30 ids", to_text(node.in_shape(1))));
  return {};
}

}  // namespace

Result<KernelOffer> table_rule(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check(node));
  const auto ids = static_cast<double>(node.in(1).bytes());
  if (node.node.op == "embedding")  // of the table only the rows that are named
    return own_offer(node.node.op, 0, pass_seconds(card, 2 * static_cast<double>(node.out(0).bytes()) + ids));
  const Shape& table = node.out_shape(0);
  const TableGrad plan = plan_table_grad(node.in_shape(1).elements(), table[0], table[1]);
  const double sorting = 2 * plan.passes * pass_seconds(card, 4 * ids) + 2 * kLaunchSeconds;
  return own_offer(node.node.op, plan.bytes, sorting + pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::cuda
