// Row-wise ops: softmax, layer normalisation, losses and match. A row is read from memory once if it fits into
// registers or shared memory.
#include <algorithm>
#include <vector>

#include "backends/cuda/own_kernel.h"
#include "backends/cuda/reduce/pieces.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int64_t kLongestRow = int64_t{1} << 30;

// The inputs that share one compute dtype.
struct FullSize {
  std::vector<size_t> inputs;
  bool output = true;  // whether output 0 has the same dtype
};

FullSize full_size_of(const std::string& op) {
  if (op == "softmax" || op == "layer_norm") return {{0}};
  if (op == "softmax_grad" || op == "layer_norm_input_grad") return {{0, 1}};
  if (op == "layer_norm_param_grad") return {{0, 1}, false};
  if (op.ends_with("_grad")) return {{1}};  // losses: dloss, x, target
  return {{0}, false};                      // losses and match
}

Status check_dtypes(const NodeView& node) {
  const FullSize full = full_size_of(node.node.op);
  const DType dtype = node.in_dtype(full.inputs.front());
  PLIMSOLL_TRY(require_compute_input(node, full.inputs.front()));
  for (size_t i = 0; i < node.inputs(); ++i) {
    const bool is_full = std::find(full.inputs.begin(), full.inputs.end(), i) != full.inputs.end();
    if (is_full)
      PLIMSOLL_TRY(require_input(node, i, dtype));
    else if (node.in_dtype(i) != DType::kInt32)  // labels
      PLIMSOLL_TRY(require_input(node, i, DType::kFloat32));
  }
  for (size_t i = 0; i < node.outputs(); ++i)
    PLIMSOLL_TRY(require_output(node, i, full.output && i == 0 ? dtype : DType::kFloat32));
  return {};
}

}  // namespace

Result<KernelOffer> offer_rowwise(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(check_dtypes(node));
  const size_t x = full_size_of(node.node.op).inputs.back();
  const Shape& shape = node.in_shape(x);
  if (shape.back() > kLongestRow || shape.elements() / shape.back() > kLongestRow)
    return refuse(node, fmt::format("[{}] has more than 2^30 rows or columns", to_text(shape)));
  Bytes workspace = 0;
  if (node.node.op == "layer_norm_param_grad") {
    const auto plan = plan_column_sums(1, shape.elements() / shape.back(), shape.back(), size_of(node.in_dtype(x)));
    workspace = 2 * plan.partials() * static_cast<Bytes>(sizeof(float));
  }
  return own_offer(node.node.op, workspace, pass_seconds(card, node.traffic()));
}

}  // namespace plimsoll::engine::cuda
