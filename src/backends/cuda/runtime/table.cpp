// From embedding nodes to launches.
#include "backends/cuda/runtime/table.h"

#include "backends/cuda/runtime/binding.h"

namespace plimsoll::cuda {

BoundKernel bind_table(Context& context, const BoundNode& node) {
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
  const TableGrad plan = plan_table_grad(tokens, table[0], table[1]);
  assert(plan.bytes <= node.workspace_bytes);
  return make_kernel(
      [=, workspace = node.workspace] { launch_embedding_grad(plan, from, x, ids, to, y, workspace, stream); });
}

}  // namespace plimsoll::cuda
