// Binds transpose, strided_slice, pad and their gradients to launches.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/move/launch.h"
#include "backends/cuda/move/pattern.h"
#include "backends/cuda/move/strided.h"
#include "backends/cuda/move/strided_launch.h"

namespace plimsoll::engine::cuda {

namespace {

tl::unexpected<Error> too_many_axes(const BoundNode& node) {
  return fail(ErrorCode::kBadPlan, node.node.op + " on a GPU: more than 8 dimensions that cannot be merged");
}

BoundKernel bind_view_copy(Context& context, const BoundNode& node, const StridedView& view) {
  const auto bytes = static_cast<int>(size_of(view_of(node).in_dtype(0)));
  const cudaStream_t stream = context.stream;
  const void* x = input<const std::byte>(node, 0) + view.offset * bytes;
  void* y = output(node, 0);
  if (const auto tiled = tiled_transpose(view))
    return make_kernel([=, tiled = *tiled] { launch_tiled_transpose(tiled, bytes, x, y, stream); });
  const auto axes = copy_axes(view);
  if (!axes) return too_many_axes(node);
  BroadcastShape shape;
  shape.axes = static_cast<int>(axes->dims.size());
  for (size_t i = 0; i < axes->dims.size(); ++i) {
    shape.sizes[i] = axes->dims[i].extent;
    shape.strides[i] = axes->dims[i].stride;
  }
  return make_kernel([=] { launch_broadcast(shape, bytes, x, y, stream); });
}

}  // namespace

BoundKernel bind_transpose(Context& context, const BoundNode& node) {
  return bind_view_copy(context, node, transposed_view(view_of(node).in_shape(0), view_of(node).attrs().list("perm")));
}

BoundKernel bind_strided_slice(Context& context, const BoundNode& node) {
  return bind_view_copy(context, node, sliced_view(view_of(node).in_shape(0), view_of(node).attrs()));
}

BoundKernel bind_strided_slice_grad(Context& context, const BoundNode& node) {
  const NodeView of = view_of(node);
  const StridedView view = collapsed(sliced_view(of.out_shape(0), of.attrs()));
  if (view.dims.size() > static_cast<size_t>(kStridedAxes)) return too_many_axes(node);
  const auto bytes = static_cast<int>(size_of(of.in_dtype(0)));
  const int64_t elements = of.out_shape(0).elements();
  ViewAxes axes;
  axes.elements = view.elements();
  for (const StridedDim& dim : view.dims) {
    axes.sizes[axes.axes] = dim.extent;
    axes.strides[axes.axes++] = dim.stride;
  }
  auto* dx = output<std::byte>(node, 0);
  return make_kernel([=, dy = input(node, 0), first = dx + view.offset * bytes, stream = context.stream] {
    launch_fill(dx, 0, bytes, elements, stream);
    launch_write_view(axes, bytes, dy, first, stream);
  });
}

BoundKernel bind_pad(Context& context, const BoundNode& node) {
  const NodeView of = view_of(node);
  const bool grad = node.node.op == "pad_grad";
  const auto padding = padding_of(grad ? of.out_shape(0) : of.in_shape(0), of.attrs());
  if (!padding) return too_many_axes(node);
  const cudaStream_t stream = context.stream;
  const void* from = input(node, 0);
  void* to = output(node, 0);
  if (grad)
    return make_kernel([=, padding = *padding, element = element_of(of.in_dtype(0))] {
      launch_pad_grad(padding, element, from, to, stream);
    });
  const uint64_t pattern = pattern_of(of.attrs().real_or("value", 0), of.in_dtype(0));
  const auto bytes = static_cast<int>(size_of(of.in_dtype(0)));
  return make_kernel([=, padding = *padding] { launch_pad(padding, bytes, pattern, from, to, stream); });
}

}  // namespace plimsoll::engine::cuda
