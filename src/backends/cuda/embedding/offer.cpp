// embedding, its gradient, and optimizer updates of the embedding matrix that apply the gradient row by row.
#include <algorithm>

#include "backends/cuda/embedding/workspace.h"
#include "backends/cuda/own_kernel.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

Status check_ids(const NodeView& node, size_t i) {
  PLIMSOLL_TRY(require_input(node, i, DType::kInt32));
  if (node.in_shape(i).elements() > kMostTokens)
    return refuse(node, fmt::format("[{}] has more than 2^30 ids", to_text(node.in_shape(i))));
  return {};
}

// A float32 embedding matrix may return rows in the compute dtype, and take its gradient from that dtype.
Status check(const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(check_ids(node, 1));
  PLIMSOLL_TRY(require_compute_output(node, 0));
  if (node.in_dtype(0) != DType::kFloat32 && node.out_dtype(0) != DType::kFloat32)
    PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  return {};
}

double sorting_seconds(const Card& card, const EmbeddingGrad& plan, double ids) {
  return 2 * plan.passes * pass_seconds(card, 4 * ids) + 2 * kLaunchSeconds;
}

}  // namespace

EmbeddingGrad plan_embedding_update(const NodeView& node) {
  const Shape& table = node.in_shape(0);
  // Without optimizer state or weight decay, a row that no id names does not change.
  const bool every_row = node.outputs() > 1 || node.attrs().real_or("weight_decay", 0) != 0;
  return plan_embedding_grad(node.in_shape(2).elements(), table[0], table[1], every_row);
}

// The embedding matrix and optimizer state are float32; dy has the compute dtype.
Result<KernelOffer> offer_row_update(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 1));
  PLIMSOLL_TRY(check_ids(node, 2));
  for (size_t i = 0; i < node.inputs(); ++i)
    if (i != 1 && is_floating(node.in_dtype(i))) PLIMSOLL_TRY(require_input(node, i, DType::kFloat32));
  const EmbeddingGrad plan = plan_embedding_update(node);
  const auto ids = static_cast<double>(node.in(2).bytes());
  // If the plan places the new matrix over the old one, rows that do not change cost no traffic.
  const auto named = static_cast<double>(std::min(plan.tokens, plan.rows) * plan.width) * 4;
  const double bytes = plan.every_row ? node.traffic() : static_cast<double>(node.in(1).bytes()) + 2 * named;
  return own_offer(node.node.op, plan.bytes, sorting_seconds(card, plan, ids) + pass_seconds(card, bytes));
}

Result<KernelOffer> offer_embedding(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check(node));
  const auto ids = static_cast<double>(node.in(1).bytes());
  if (node.node.op == "embedding")  // only the rows that occur in the ids are read
    return own_offer(node.node.op, 0, pass_seconds(card, 2 * static_cast<double>(node.out(0).bytes()) + ids));
  const Shape& table = node.out_shape(0);
  const EmbeddingGrad plan = plan_embedding_grad(node.in_shape(1).elements(), table[0], table[1]);
  return own_offer(node.node.op, plan.bytes, sorting_seconds(card, plan, ids) + pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
