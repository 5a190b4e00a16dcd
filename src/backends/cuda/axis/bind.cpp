// Binds reductions other than sums, cumulative sums and products, and sorts to launches.
#include "backends/cuda/axis/launch.h"
#include "backends/cuda/axis/plan.h"
#include "backends/cuda/driver/binding.h"

namespace plimsoll::engine::cuda {

BoundKernel bind_extreme(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const Extreme kind = op == "reduce_max" ? Extreme::kMax : op == "reduce_min" ? Extreme::kMin : Extreme::kProd;
  const AxisReduction plan = plan_axis_reduction(view.in_shape(0), view.out_shape(0));
  assert(plan.workspace <= node.workspace_bytes);
  auto* workspace = static_cast<std::byte*>(node.workspace);
  return make_kernel([=, steps = plan.steps, element = element_of(view.in_dtype(0)), x = input(node, 0),
                      y = output(node, 0), stream = context.stream] {
    for (const AxisStep& step : steps) {
      const void* source = step.from < 0 ? x : workspace + step.from;
      void* result = step.to < 0 ? y : workspace + step.to;
      launch_axis_step(step, kind, step.from < 0 ? element : Element::kF32, source,
                       step.to < 0 ? element : Element::kF32, result, stream);
    }
  });
}

BoundKernel bind_arg(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const AroundAxis x(view.in_shape(0), static_cast<size_t>(view.attrs().integer("axis")));
  return make_kernel([=, largest = node.node.op == "arg_max", element = element_of(view.in_dtype(0)),
                      from = input(node, 0), index = output<int32_t>(node, 0), stream = context.stream] {
    launch_arg(x.outer, x.size, x.inner, largest, element, from, index, stream);
  });
}

BoundKernel bind_cumulate(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const AroundAxis x(view.in_shape(0), static_cast<size_t>(view.attrs().integer("axis")));
  const Cumulation c{x.outer,
                     x.size,
                     x.inner,
                     node.node.op == "cumprod",
                     view.attrs().flag("reverse"),
                     view.attrs().flag("exclusive")};
  return make_kernel([=, element = element_of(view.in_dtype(0)), from = input(node, 0), to = output(node, 0),
                      stream = context.stream] { launch_cumulate(c, element, from, to, stream); });
}

BoundKernel bind_sort(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const int64_t n = view.in_shape(0).back();
  const RowSort sort{view.in_shape(0).elements() / n, n, view.out_shape(0).back(),
                     node.node.op == "top_k" || view.attrs().flag("descending")};
  assert(sort.workspace() <= node.workspace_bytes);
  return make_kernel([=, element = element_of(view.in_dtype(0)), x = input(node, 0), values = output(node, 0),
                      index = output<int32_t>(node, 1), workspace = node.workspace,
                      stream = context.stream] { launch_sort(sort, element, x, values, index, workspace, stream); });
}

}  // namespace plimsoll::engine::cuda
