// Binds embedding nodes and row updates of embedding matrices to launches.
#include "backends/cuda/embedding/launch.h"

#include "backends/cuda/driver/binding.h"
#include "base/rounding.h"

namespace plimsoll::engine::cuda {

namespace {

// w, dy, ids, learning_rate, state? -> w, state?
BoundKernel bind_sgd_rows(const BoundNode& node, const EmbeddingGrad& plan, cudaStream_t stream) {
  const NodeView view = view_of(node);
  SgdRows update;
  update.w = input<const float>(node, 0);
  update.new_w = output<float>(node, 0);
  update.rate = input<const float>(node, 3);
  update.momentum = static_cast<float>(view.attrs().real_or("momentum", 0));
  update.decay = static_cast<float>(view.attrs().real_or("weight_decay", 0));
  update.nesterov = view.attrs().flag("nesterov");
  if (view.outputs() > 1) {
    update.state = input<const float>(node, 4);
    update.new_state = output<float>(node, 1);
  }
  return make_kernel(
      [=, element = element_of(view.in_dtype(1)), dy = input(node, 1), ids = input<const int32_t>(node, 2),
       workspace = node.workspace] { launch_sgd_rows(plan, element, dy, ids, update, workspace, stream); });
}

// w, dy, ids, m, v, learning_rate, iteration -> w, m, v
BoundKernel bind_adam_rows(const BoundNode& node, const EmbeddingGrad& plan, cudaStream_t stream) {
  const NodeView view = view_of(node);
  const double beta_1 = view.attrs().real("beta_1"), beta_2 = view.attrs().real("beta_2");
  AdamRows update;
  update.w = input<const float>(node, 0);
  update.m = input<const float>(node, 3);
  update.v = input<const float>(node, 4);
  update.new_w = output<float>(node, 0);
  update.new_m = output<float>(node, 1);
  update.new_v = output<float>(node, 2);
  update.rate = input<const float>(node, 5);
  update.iteration = input<const int64_t>(node, 6);
  update.beta_1 = through_float32(beta_1);
  update.beta_2 = through_float32(beta_2);
  update.rest_1 = static_cast<float>(1.0 - beta_1);
  update.rest_2 = static_cast<float>(1.0 - beta_2);
  update.epsilon = static_cast<float>(view.attrs().real("epsilon"));
  update.decay = static_cast<float>(view.attrs().real_or("weight_decay", 0));
  return make_kernel(
      [=, element = element_of(view.in_dtype(1)), dy = input(node, 1), ids = input<const int32_t>(node, 2),
       workspace = node.workspace] { launch_adam_rows(plan, element, dy, ids, update, workspace, stream); });
}

}  // namespace

BoundKernel bind_row_update(Context& context, const BoundNode& node) {
  const EmbeddingGrad plan = plan_embedding_update(view_of(node));
  assert(plan.bytes <= node.workspace_bytes);
  if (node.node.op == "sgd_rows") return bind_sgd_rows(node, plan, context.stream);
  assert(node.node.op == "adam_rows");
  return bind_adam_rows(node, plan, context.stream);
}

BoundKernel bind_embedding(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const cudaStream_t stream = context.stream;
  const Element from = element_of(view.in_dtype(0)), to = element_of(view.out_dtype(0));
  const int64_t tokens = view.in_shape(1).elements();
  const void* x = input(node, 0);
  const auto* ids = input<const int32_t>(node, 1);
  void* y = output(node, 0);
  if (node.node.op == "embedding") {
    const int64_t rows = view.in_shape(0)[0];
    const auto width = static_cast<int>(view.in_shape(0)[1]);
    return make_kernel([=] { launch_embedding(tokens, rows, width, from, x, ids, to, y, stream); });
  }
  assert(node.node.op == "embedding_grad");
  const Shape& table = view.out_shape(0);
  const EmbeddingGrad plan = plan_embedding_grad(tokens, table[0], table[1]);
  assert(plan.bytes <= node.workspace_bytes);
  return make_kernel(
      [=, workspace = node.workspace] { launch_embedding_grad(plan, from, x, ids, to, y, workspace, stream); });
}

}  // namespace plimsoll::engine::cuda
