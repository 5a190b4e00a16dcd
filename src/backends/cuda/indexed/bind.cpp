// Binds reads and sums by index, iota and one_hot to launches.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/embedding/launch.h"
#include "backends/cuda/indexed/launch.h"
#include "backends/cuda/indexed/workspace.h"
#include "backends/cuda/move/launch.h"
#include "backends/cuda/move/pattern.h"
#include "ops/strided.h"

namespace plimsoll::engine::cuda {

namespace {

IndexedAxis axis_of(const NodeView& view, const Shape& shape) {
  const AroundAxis around(shape, static_cast<size_t>(view.attrs().integer("axis")));
  return {around.outer, around.size, around.inner};
}

BoundKernel bind_scatter_add(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const IndexedAxis y = axis_of(view, view.out_shape(0));
  const int64_t count = view.in_shape(1).elements();
  const ScatterAdd plan = plan_scatter_add(y.outer, y.size, y.inner, count);
  assert(plan.bytes() <= node.workspace_bytes);
  auto* space = static_cast<std::byte*>(node.workspace);
  return make_kernel([=, element = element_of(view.in_dtype(0)), updates = input(node, 0),
                      ids = input<const int32_t>(node, 1), to = output(node, 0), stream = context.stream] {
    const int32_t* rows = ids;
    if (plan.ids > 0) {
      auto* expanded = reinterpret_cast<int32_t*>(space);
      launch_expand_ids(y, count, ids, expanded, stream);
      rows = expanded;
    }
    launch_embedding_grad(plan.grad, element, updates, rows, element, to, space + plan.ids, stream);
  });
}

BoundKernel bind_take_grad(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const IndexedAxis dx = axis_of(view, view.out_shape(0));
  const int64_t count = view.in_shape(1).elements() / (dx.outer * dx.inner), elements = view.out_shape(0).elements();
  const DType dtype = view.in_dtype(0);
  auto* sums = is_half(dtype) ? static_cast<float*>(node.workspace) : output<float>(node, 0);
  const auto from = Number::kF32, to = static_cast<Number>(dtype);
  return make_kernel([=, element = element_of(dtype), dy = input(node, 0), ids = input<const int32_t>(node, 1),
                      result = output(node, 0), stream = context.stream] {
    launch_fill(sums, 0, 4, elements, stream);
    launch_take_grad(dx, count, element, dy, ids, sums, stream);
    if (to != from) launch_cast(from, to, elements, sums, result, stream);
  });
}

}  // namespace

BoundKernel bind_indexed(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const cudaStream_t stream = context.stream;
  if (op == "scatter_add") return bind_scatter_add(context, node);
  if (op == "take_along_grad") return bind_take_grad(context, node);
  void* to = output(node, 0);
  if (op == "iota") {
    const IndexedAxis y = axis_of(view, view.out_shape(0));
    const bool integers = view.out_dtype(0) == DType::kInt32;
    const Element element = integers ? Element::kF32 : element_of(view.out_dtype(0));
    return make_kernel([=] { launch_iota(y, integers, element, to, stream); });
  }
  if (op == "one_hot") {
    const int64_t count = view.in_shape(0).elements(), depth = view.attrs().integer("depth");
    return make_kernel([=, ids = input<const int32_t>(node, 0), element = element_of(view.out_dtype(0))] {
      launch_one_hot(count, depth, ids, element, to, stream);
    });
  }
  const IndexedAxis x = axis_of(view, view.in_shape(0));
  const DType dtype = view.in_dtype(0);
  const uint64_t missing =
      is_floating(dtype) ? pattern_of(std::numeric_limits<double>::quiet_NaN(), dtype) : uint64_t{0};
  const auto bytes = static_cast<int>(size_of(dtype));
  const bool whole = op == "gather";
  const int64_t ids_count = view.in_shape(1).elements();
  const int64_t count = whole ? ids_count : ids_count / (x.outer * x.inner);
  return make_kernel([=, from = input(node, 0), ids = input<const int32_t>(node, 1)] {
    if (whole)
      launch_gather(x, count, bytes, missing, from, ids, to, stream);
    else
      launch_take(x, count, bytes, missing, from, ids, to, stream);
  });
}

}  // namespace plimsoll::engine::cuda
