// Binds affine_image to its launch.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/move/affine_image_launch.h"

namespace plimsoll::engine::cuda {

BoundKernel bind_affine_image(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const Shape& x = view.in_shape(0);
  AffineImages g;
  g.batch = x[0];
  g.height = static_cast<int>(x[1]);
  g.width = static_cast<int>(x[2]);
  g.channels = static_cast<int>(x[3]);
  g.mode = fill_mode(view.attrs().text("fill_mode")).value_or(FillMode::kConstant);
  g.nearest = view.attrs().text("interpolation") == "nearest";
  g.fill = static_cast<float>(view.attrs().real("fill_value"));
  const Element element = element_of(view.in_dtype(0)), transform_element = element_of(view.in_dtype(1));
  const cudaStream_t stream = context.stream;
  const void *from = input<const void>(node, 0), *transforms = input<const void>(node, 1);
  void* to = output<void>(node, 0);
  return make_kernel([=] { launch_affine_image(g, element, transform_element, from, transforms, to, stream); });
}

}  // namespace plimsoll::engine::cuda
