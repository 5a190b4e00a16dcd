// Binds sums to launches.
#include "backends/cuda/reduce/launch.h"

#include "backends/cuda/driver/binding.h"
#include "backends/cuda/reduce/axes.h"

namespace plimsoll::engine::cuda {

namespace {

// The weights of weighted_sum and its gradient: input 2, if there is one.
struct Weights {
  const float* data = nullptr;
  int64_t rows_per_weight = 1;

  Weights(const BoundNode& node, int64_t rows) {
    const NodeView view = view_of(node);
    if (!view.attrs().flag("weighted")) return;
    data = input<const float>(node, 2);
    rows_per_weight = rows / view.in_shape(2).elements();
  }
};

}  // namespace

BoundKernel bind_reduce_to(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const Reduction plan = plan_reduction(view.in_shape(0), view.out_shape(0), size_of(view.in_dtype(0)));
  const Element from = element_of(view.in_dtype(0)), to = element_of(view.out_dtype(0));
  auto* workspace = static_cast<std::byte*>(node.workspace);
  const SumSpace space{workspace + plan.partials, context.counters};
  const cudaStream_t stream = context.stream;
  return make_kernel([=, steps = plan.steps, x = input(node, 0), y = output(node, 0)] {
    for (const auto& step : steps) {
      const void* source = step.from < 0 ? x : workspace + step.from;
      void* sink = step.to < 0 ? y : workspace + step.to;
      launch_axis_sum(step.outer, step.rows, step.columns, step.from < 0 ? from : Element::kF32, source,
                      step.to < 0 ? to : Element::kF32, sink, space, stream);
    }
  });
}

BoundKernel bind_reduce(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const cudaStream_t stream = context.stream;
  const SumSpace space{node.workspace, context.counters};
  auto* to = output<float>(node, 0);
  if (op == "clip_factor") {
    const auto limit = static_cast<float>(view.attrs().real("limit"));
    return make_kernel([=, norm = input<const float>(node, 0)] { launch_clip_factor(norm, limit, to, stream); });
  }
  if (op == "squared_norm" || op == "l1_l2_penalty") {
    const bool norm = op == "squared_norm";
    const auto l1 = static_cast<float>(norm ? 0.0 : view.attrs().real_or("l1", 0));
    const auto l2 = static_cast<float>(norm ? 1.0 : view.attrs().real_or("l2", 0));
    const int64_t elements = view.in_shape(0).elements();
    return make_kernel([=, element = element_of(view.in_dtype(0)), x = input(node, 0)] {
      launch_penalty(elements, element, x, l1, l2, to, space, stream);
    });
  }
  const auto *first = input<const float>(node, 0), *scale = input<const float>(node, 1);
  if (op == "weighted_sum") {
    const int64_t rows = view.in_shape(0).elements();
    const Weights weights(node, rows);
    return make_kernel(
        [=] { launch_weighted_sum(rows, first, scale, weights.data, weights.rows_per_weight, to, space, stream); });
  }
  assert(op == "weighted_sum_grad");
  const int64_t rows = view.out_shape(0).elements();
  const Weights weights(node, rows);
  return make_kernel(
      [=] { launch_weighted_sum_grad(rows, first, scale, weights.data, weights.rows_per_weight, to, stream); });
}

}  // namespace plimsoll::engine::cuda
