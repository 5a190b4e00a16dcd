// Binds pooling nodes to launches.
#include "backends/cuda/pooling/launch.h"

#include "backends/cuda/driver/binding.h"

namespace plimsoll::engine::cuda {

namespace {

PoolWindow window_of(const Attrs& attrs, const Shape& image, const Shape& pooled) {
  const auto &pool = attrs.list("pool"), &strides = attrs.list("strides"), &pads = attrs.list("pads");
  const auto number = [](int64_t v) { return static_cast<int>(v); };
  return {image[0],           number(image[1]),   number(image[2]), number(image[3]),
          number(pooled[1]),  number(pooled[2]),  number(pool[0]),  number(pool[1]),
          number(strides[0]), number(strides[1]), number(pads[0]),  number(pads[2])};
}

PoolVolume volume_of(const Attrs& attrs, const Shape& image, const Shape& pooled) {
  const auto &pool = attrs.list("pool"), &strides = attrs.list("strides"), &pads = attrs.list("pads");
  const auto number = [](int64_t v) { return static_cast<int>(v); };
  const size_t rank = pool.size();
  PoolVolume g;
  g.n = image[0], g.h = number(image[rank - 1]), g.w = number(image[rank]), g.c = number(image.back());
  g.oh = number(pooled[rank - 1]), g.ow = number(pooled[rank]);
  g.kh = number(pool[rank - 2]), g.kw = number(pool[rank - 1]);
  g.sh = number(strides[rank - 2]), g.sw = number(strides[rank - 1]);
  g.top = number(pads[2 * rank - 4]), g.left = number(pads[2 * rank - 2]);
  if (rank == 3) {
    g.d = number(image[1]), g.od = number(pooled[1]);
    g.kd = number(pool[0]), g.sd = number(strides[0]), g.front = number(pads[0]);
  }
  return g;
}

BoundKernel bind_volume_pool(Context& context, const BoundNode& node, bool max, bool grad, bool wide) {
  const NodeView view = view_of(node);
  const Element element = element_of(view.in_dtype(0));
  const cudaStream_t stream = context.stream;
  const void* from = input(node, 0);
  void* to = output(node, 0);
  const PoolVolume g = grad ? volume_of(view.attrs(), view.out_shape(0), view.in_shape(0))
                            : volume_of(view.attrs(), view.in_shape(0), view.out_shape(0));
  if (!max && grad) return make_kernel([=] { launch_avg_pool_grad(g, element, from, to, stream); });
  if (!max) return make_kernel([=] { launch_avg_pool(g, element, from, to, stream); });
  if (grad)
    return make_kernel(
        [=, index = node.inputs[1]] { launch_max_pool_grad(g, element, from, index, wide, to, stream); });
  return make_kernel([=, index = node.outputs[1]] { launch_max_pool(g, element, from, to, index, wide, stream); });
}

}  // namespace

BoundKernel bind_pool(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const bool max = node.node.op.starts_with("max"), grad = node.node.op.ends_with("_grad");
  const bool wide = max && (grad ? view.in_dtype(1) : view.out_dtype(1)) == DType::kInt32;
  if (wide || view.attrs().list("pool").size() == 3) return bind_volume_pool(context, node, max, grad, wide);
  const Element element = element_of(view.in_dtype(0));
  const cudaStream_t stream = context.stream;
  const void* from = input(node, 0);
  void* to = output(node, 0);
  if (grad) {
    const PoolWindow g = window_of(view.attrs(), view.out_shape(0), view.in_shape(0));
    if (!max) return make_kernel([=] { launch_avg_pool_grad(g, element, from, to, stream); });
    const auto* index = input<const uint8_t>(node, 1);
    return make_kernel([=] { launch_max_pool_grad(g, element, from, index, to, stream); });
  }
  const PoolWindow g = window_of(view.attrs(), view.in_shape(0), view.out_shape(0));
  if (!max) return make_kernel([=] { launch_avg_pool(g, element, from, to, stream); });
  auto* index = output<uint8_t>(node, 1);
  return make_kernel([=] { launch_max_pool(g, element, from, to, index, stream); });
}

BoundKernel bind_global_pool(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const bool max = node.node.op.starts_with("global_max"), grad = node.node.op.ends_with("_grad");
  const Shape& image = grad ? view.out_shape(0) : view.in_shape(0);
  const GlobalPool g{image[0], static_cast<int>(image[1] * image[2]), static_cast<int>(image[3])};
  const Element element = element_of(view.in_dtype(0));
  const cudaStream_t stream = context.stream;
  const void* from = input(node, 0);
  void* to = output(node, 0);
  if (grad) {
    if (!max) return make_kernel([=] { launch_global_avg_pool_grad(g, element, from, to, stream); });
    const auto* index = input<const int32_t>(node, 1);
    return make_kernel([=] { launch_global_max_pool_grad(g, element, from, index, to, stream); });
  }
  if (!max) return make_kernel([=] { launch_global_avg_pool(g, element, from, to, stream); });
  auto* index = output<int32_t>(node, 1);
  return make_kernel([=] { launch_global_max_pool(g, element, from, to, index, stream); });
}

}  // namespace plimsoll::engine::cuda
