// Binds the data-movement ops (copy, concat, slice, broadcast, pad, upsample, cast, fill, constant, reorder) to kernel
// launches.
#include "backends/cuda/move/launch.h"

#include <vector>

#include "backends/cuda/driver/binding.h"
#include "backends/cuda/move/pattern.h"
#include "ops/build.h"

namespace plimsoll::engine::cuda {

namespace {

static_assert(static_cast<int>(Number::kF16) == static_cast<int>(DType::kFloat16));
static_assert(static_cast<int>(Number::kI32) == static_cast<int>(DType::kInt32));
static_assert(static_cast<int>(Number::kBool) == static_cast<int>(DType::kBool));

Number number_of(DType dtype) {
  return static_cast<Number>(dtype);
}

}  // namespace

BoundKernel bind_copy(Context& context, const BoundNode& node) {
  const Bytes bytes = view_of(node).out(0).type.bytes();
  return make_kernel([=, from = input(node, 0), to = output(node, 0), stream = context.stream] {
    if (from != to) launch_copy(from, to, bytes, stream);
  });
}

namespace {

// Bytes per index of the axis, including all inner axes, and the number of outer repetitions.
struct AxisStrips {
  Bytes inner;
  int64_t outer = 1;

  AxisStrips(const TensorType& type, size_t axis) : inner(size_of(type.dtype)) {
    for (size_t i = 0; i < axis; ++i) outer *= type.shape[i];
    for (size_t i = axis + 1; i < type.shape.rank(); ++i) inner *= type.shape[i];
  }
};

}  // namespace

BoundKernel bind_concat(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const auto axis = static_cast<size_t>(view.attrs().integer("axis"));
  const AxisStrips strips(view.out(0).type, axis);
  auto* to = output<std::byte>(node, 0);
  std::vector<StripCopy> copies;
  for (size_t i = 0; i < view.inputs(); ++i) {
    const Bytes strip = view.in_shape(i)[axis] * strips.inner;
    copies.push_back({input(node, i), to, strips.outer, strip, strip, view.out_shape(0)[axis] * strips.inner});
    to += strip;
  }
  return make_kernel([copies = std::move(copies), stream = context.stream] {
    const auto count = static_cast<int>(copies.size());
    for (int i = 0; i < count; i += kCopiesAtOnce)
      launch_copies(copies.data() + i, std::min(count - i, kCopiesAtOnce), stream);
  });
}

BoundKernel bind_slice(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const auto axis = static_cast<size_t>(view.attrs().integer("axis"));
  const AxisStrips strips(view.in(0).type, axis);
  const Bytes strip = view.out_shape(0)[axis] * strips.inner;
  const StripCopy copy{input<std::byte>(node, 0) + view.attrs().integer("begin") * strips.inner,
                       output(node, 0),
                       strips.outer,
                       strip,
                       view.in_shape(0)[axis] * strips.inner,
                       strip};
  return make_kernel([=, stream = context.stream] { launch_copies(&copy, 1, stream); });
}

namespace {

// The axes of y, with adjacent axes merged if x has matching strides.
Result<BroadcastShape> broadcast_shape(const Shape& x, const Shape& y) {
  std::vector<int64_t> sizes, strides;  // innermost axis first
  const size_t shift = y.rank() - x.rank();
  int64_t stride = 1;
  for (size_t i = y.rank(); i-- > 0;) {
    const int64_t extent = i >= shift ? x[i - shift] : 1;
    const int64_t here = extent == 1 ? 0 : stride;
    stride *= extent;
    if (y[i] == 1) continue;
    const bool joins = !sizes.empty() && here == (strides.back() == 0 ? 0 : strides.back() * sizes.back()) &&
                       (here == 0) == (strides.back() == 0);
    if (joins) {
      sizes.back() *= y[i];
    } else {
      sizes.push_back(y[i]);
      strides.push_back(here);
    }
  }
  if (sizes.size() > static_cast<size_t>(BroadcastShape::kAxes))
    return fail(ErrorCode::kUnsupported, "broadcast on a GPU: more than 8 axes after merging");
  BroadcastShape shape;
  shape.axes = static_cast<int>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape.sizes[i] = sizes[sizes.size() - 1 - i];
    shape.strides[i] = strides[sizes.size() - 1 - i];
  }
  return shape;
}

}  // namespace

BoundKernel bind_broadcast(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  PLIMSOLL_ASSIGN(const BroadcastShape shape, broadcast_shape(view.in_shape(0), view.out_shape(0)));
  const auto bytes = static_cast<int>(size_of(view.in_dtype(0)));
  return make_kernel([=, x = input(node, 0), y = output(node, 0), stream = context.stream] {
    launch_broadcast(shape, bytes, x, y, stream);
  });
}

BoundKernel bind_shift(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const Shape &x = view.in_shape(0), &y = view.out_shape(0);
  const auto& pads = view.attrs().list("pads");
  const int sign = node.node.op == "pad2d" ? 1 : -1;
  const ImageShift g{x[0],
                     static_cast<int>(x[1]),
                     static_cast<int>(x[2]),
                     static_cast<int>(y[1]),
                     static_cast<int>(y[2]),
                     sign * static_cast<int>(pads[0]),
                     sign * static_cast<int>(pads[2]),
                     x[3] * size_of(view.in_dtype(0))};
  return make_kernel(
      [=, from = input(node, 0), to = output(node, 0), stream = context.stream] { launch_shift(g, from, to, stream); });
}

BoundKernel bind_upsample(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const bool grad = node.node.op == "upsample2d_grad";
  const Shape& small = grad ? view.out_shape(0) : view.in_shape(0);
  const auto& size = view.attrs().list("size");
  const Upsampling g{small[0],
                     static_cast<int>(small[1]),
                     static_cast<int>(small[2]),
                     static_cast<int>(small[3]),
                     static_cast<int>(size[0]),
                     static_cast<int>(size[1]),
                     view.attrs().text("interpolation") == "bilinear"};
  const Element element = element_of(view.in_dtype(0));
  return make_kernel([=, from = input(node, 0), to = output(node, 0), stream = context.stream] {
    if (grad)
      launch_upsample_grad(g, element, from, to, stream);
    else
      launch_upsample(g, element, from, to, stream);
  });
}

BoundKernel bind_fill(Context& context, const BoundNode& node) {
  const TensorType& type = view_of(node).out(0).type;
  const uint64_t pattern = pattern_of(node.node.attrs.real("value"), type.dtype);
  const auto bytes = static_cast<int>(size_of(type.dtype));
  const int64_t elements = type.shape.elements();
  return make_kernel(
      [=, to = output(node, 0), stream = context.stream] { launch_fill(to, pattern, bytes, elements, stream); });
}

// The numbers travel as kernel arguments, so they need no memory on the card besides the output.
BoundKernel bind_constant(Context& context, const BoundNode& node) {
  const TensorType& type = view_of(node).out(0).type;
  const std::vector<double> values = *constant_values(node.node.attrs);  // the shape rule has checked them
  const auto size = static_cast<size_t>(size_of(type.dtype));
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t pattern = pattern_of(values[i], type.dtype);
    std::memcpy(bytes.data() + i * size, &pattern, size);
  }
  return make_kernel([bytes = std::move(bytes), to = output(node, 0), stream = context.stream] {
    launch_constant(to, bytes.data(), static_cast<int64_t>(bytes.size()), stream);
  });
}

BoundKernel bind_cast(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  if (view.in_dtype(0) == view.out_dtype(0)) return bind_copy(context, node);
  const int64_t elements = view.in_shape(0).elements();
  return make_kernel([=, from = number_of(view.in_dtype(0)), to = number_of(view.out_dtype(0)), x = input(node, 0),
                      y = output(node, 0), stream = context.stream] { launch_cast(from, to, elements, x, y, stream); });
}

// Weights [kh,kw,i,o] seen as a matrix [kh*kw*i, o]: the other layout is its transpose.
BoundKernel bind_reorder(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string &from = view.in(0).layout, &to = view.attrs().text("layout");
  if (from == to) return bind_copy(context, node);
  std::vector<Transposition> moves;
  for (size_t i = 0; i < view.inputs(); ++i) {
    const Shape& shape = view.in_shape(i);
    const auto o = static_cast<int>(shape.back()), inner = static_cast<int>(shape.elements() / shape.back());
    moves.push_back({input(node, i), output(node, i), from.empty() ? inner : o, from.empty() ? o : inner});
  }
  const auto bytes = static_cast<int>(size_of(view.in_dtype(0)));
  return make_kernel([=, moves = std::move(moves), stream = context.stream] {
    launch_transpositions(moves.data(), static_cast<int>(moves.size()), bytes, stream);
  });
}

}  // namespace plimsoll::engine::cuda
