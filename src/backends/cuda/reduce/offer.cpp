// Sums in two stages: blocks write partial sums to the workspace, and the block that finishes last adds them up.
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/reduce/axes.h"

namespace plimsoll::engine::cuda {

namespace {

Result<KernelOffer> offer_total(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_output(node, 0, DType::kFloat32));
  return own_offer(node.node.op, total_sum_bytes(node.in_shape(0).elements()), pass_seconds(card, node.traffic()));
}

}  // namespace

Result<KernelOffer> offer_reduce_to(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  if (node.out_dtype(0) != DType::kFloat32) PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  const Reduction plan = plan_reduction(node.in_shape(0), node.out_shape(0), size_of(node.in_dtype(0)));
  double seconds = pass_seconds(card, node.traffic());
  for (size_t i = 1; i < plan.steps.size(); ++i) {
    const auto& step = plan.steps[i];
    const double bytes = 2.0 * sizeof(float) * static_cast<double>(step.outer * step.rows * step.columns);
    seconds += pass_seconds(card, bytes);
  }
  return own_offer(node.node.op, plan.workspace, seconds);
}

Result<KernelOffer> offer_reduce(const Card& card, const NodeView& node) {
  const std::string& op = node.node.op;
  if (op == "squared_norm" || op == "l1_l2_penalty") return offer_total(card, node);
  for (size_t i = 0; i < node.inputs(); ++i) PLIMSOLL_TRY(require_input(node, i, DType::kFloat32));
  PLIMSOLL_TRY(require_output(node, 0, DType::kFloat32));
  const Bytes workspace = op == "weighted_sum" ? total_sum_bytes(node.in_shape(0).elements()) : 0;
  return own_offer(op, workspace, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
