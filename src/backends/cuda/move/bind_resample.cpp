// Binds resample, adaptive_max_pool and their gradients to launches.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/move/resample_launch.h"
#include "backends/cuda/workspace.h"

namespace plimsoll::engine::cuda {

BoundKernel bind_resample(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const bool max = op.starts_with("adaptive_max"), grad = op.ends_with("_grad");
  const ResampleMethod method = max ? ResampleMethod::kAverage : resample_method(view.attrs().text("method"));
  const Shape &large = grad ? view.out_shape(0) : view.in_shape(0),
              &small = grad ? view.in_shape(0) : view.out_shape(0);
  const ResampleLines l = resample_lines(large, small, view.attrs().integer("axis"), method);
  const Element element = element_of(view.in_dtype(0));
  const cudaStream_t stream = context.stream;
  const void* from = input(node, 0);
  void *to = output(node, 0), *table = workspace_of(node).data;
  if (max && grad)
    return make_kernel(
        [=, index = input<const int32_t>(node, 1)] { launch_adaptive_max_grad(l, element, from, index, to, stream); });
  if (max)
    return make_kernel(
        [=, index = output<int32_t>(node, 1)] { launch_adaptive_max(l, element, from, to, index, stream); });
  if (workspace_of(node).bytes < l.table_bytes())
    return fail(ErrorCode::kBadPlan, op + ": the plan's workspace is too small for the table of weights");
  if (grad) return make_kernel([=] { launch_resample_grad(l, method, element, from, to, table, stream); });
  return make_kernel([=] { launch_resample(l, method, element, from, to, table, stream); });
}

}  // namespace plimsoll::engine::cuda
