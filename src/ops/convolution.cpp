// Shape rules and gradients of convolutions.
#include "ops/convolution.h"

#include "ops/window.h"

namespace plimsoll::engine {
namespace {

std::string op_name(size_t rank, const char* suffix = "") {
  return fmt::format("conv{}d{}", rank, suffix);
}

size_t rank_of(const Node& node) {
  return node.attrs.list("strides").size();
}

bool check_attrs(InferCheck& check, size_t rank) {
  return check.list("strides", rank, 1) && check.list("pads", 2 * rank, 0) && check.list("dilations", rank, 1) &&
         check.integer("groups", 1);
}

bool check_tensors(InferCheck& check, size_t rank, size_t most_inputs) {
  return check.inputs(2, most_inputs) && check.all_floats() && check.rank(0, rank + 2) && check.rank(1, rank + 2) &&
         check_attrs(check, rank);
}

std::string sizes_text(const WindowGeometry::Sizes& sizes, size_t rank, std::string_view separator) {
  return fmt::format("{}", fmt::join(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank), separator));
}

std::string window_text(const WindowGeometry& g) {
  return fmt::format("a {} kernel with dilations {} over {}", sizes_text(g.kernel, g.rank, "x"),
                     sizes_text(g.dilations, g.rank, ","), g.padded_input());
}

// [samples, sizes..., channels]
Shape image_shape(int64_t samples, const int64_t* sizes, size_t rank, int64_t channels) {
  std::vector<int64_t> dims = {samples};
  dims.insert(dims.end(), sizes, sizes + rank);
  dims.push_back(channels);
  return Shape(std::move(dims));
}

Ints image_sizes(const Shape& image) {
  return {image.dims.begin() + 1, image.dims.end() - 1};
}

bool check_channels(InferCheck& check, int64_t channels, int64_t outputs, int64_t kernel_channels, const Attrs& attrs) {
  const int64_t groups = attrs.integer("groups");
  return check.require(
             channels % groups == 0 && outputs % groups == 0,
             fmt::format("groups={} must divide {} input and {} output channels", groups, channels, outputs)) &&
         check.require(kernel_channels == channels / groups,
                       fmt::format("the kernel must have {} input channels ({} channels in {} groups), not {}",
                                   channels / groups, channels, groups, kernel_channels));
}

bool check_result(InferCheck& check, const WindowGeometry& g, const Shape& dy) {
  const Ints sizes = image_sizes(dy);
  return check.require(std::equal(sizes.begin(), sizes.end(), g.output.begin()),
                       fmt::format("{} gives {}, but dy is {}", window_text(g), sizes_text(g.output, g.rank, "x"),
                                   fmt::join(sizes, "x")));
}

Result<Types> infer_forward(size_t rank, InTypes in, const Attrs& attrs) {
  InferCheck check(op_name(rank), in, attrs);
  if (!check_tensors(check, rank, 3)) return check.failed();
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (!check_channels(check, x.back(), w.back(), w[rank], attrs)) return check.failed();
  if (in.size() == 3) check.require(in[2].shape == Shape{w.back()}, fmt::format("the bias must be [{}]", w.back()));
  const WindowGeometry g = window_geometry(&w.dims[0], &x.dims[1], attrs);
  check.require(g.has_output(), window_text(g) + " has no output");
  return check.outputs({{in[0].dtype, image_shape(x[0], g.output.data(), rank, w.back())}});
}

Result<Types> infer_input_grad(size_t rank, InTypes in, const Attrs& attrs) {
  InferCheck check(op_name(rank, "_input_grad"), in, attrs);
  if (!check_tensors(check, rank, 2) || !check.list("input_size", rank, 1)) return check.failed();
  const Shape &dy = in[0].shape, &w = in[1].shape;
  const auto& size = attrs.list("input_size");
  const int64_t channels = w[rank] * attrs.integer("groups");
  if (!check.require(dy.back() == w.back(),
                     fmt::format("dy has {} channels, but the kernel has {} outputs", dy.back(), w.back())) ||
      !check_channels(check, channels, w.back(), w[rank], attrs))
    return check.failed();
  check_result(check, window_geometry(&w.dims[0], size.data(), attrs), dy);
  return check.outputs({{in[0].dtype, image_shape(dy[0], size.data(), rank, channels)}});
}

Result<Types> infer_weight_grad(size_t rank, InTypes in, const Attrs& attrs) {
  InferCheck check(op_name(rank, "_weight_grad"), in, attrs);
  if (!check_tensors(check, rank, 2) || !check.list("kernel", rank, 1) || !check.optional_flag("bias"))
    return check.failed();
  const Shape &x = in[0].shape, &dy = in[1].shape;
  const auto& kernel = attrs.list("kernel");
  const int64_t groups = attrs.integer("groups");
  if (!check_channels(check, x.back(), dy.back(), x.back() / groups, attrs) ||
      !check.require(dy[0] == x[0], fmt::format("x has {} samples, but dy has {}", x[0], dy[0])))
    return check.failed();
  check_result(check, window_geometry(kernel.data(), &x.dims[1], attrs), dy);
  std::vector<int64_t> dims = kernel;
  dims.insert(dims.end(), {x.back() / groups, dy.back()});
  Types types = {{in[0].dtype, Shape(std::move(dims))}};
  if (attrs.flag("bias")) types.push_back({in[0].dtype, Shape{dy.back()}});
  return check.outputs(std::move(types));
}

Attrs geometry_attrs(const Node& node) {
  Attrs attrs;
  for (const char* key : {"strides", "pads", "dilations", "groups"}) attrs.set(key, node.attrs.items().at(key));
  return attrs;
}

Attrs with_input_size(Attrs attrs, const Shape& x) {
  attrs.set("input_size", image_sizes(x));
  return attrs;
}

Attrs with_kernel(Attrs attrs, const Shape& w) {
  attrs.set("kernel", Ints(w.dims.begin(), w.dims.end() - 2));
  return attrs;
}

std::vector<ValueId> forward_gradient(const GradientCall& g) {
  const Attrs attrs = geometry_attrs(g.node);
  const size_t rank = rank_of(g.node);
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  const bool wants_bias = grads.size() == 3 && g.wants(2);
  if (g.wants(0))
    grads[0] =
        g.b.add1(op_name(rank, "_input_grad"), {g.grad(), g.in(1)}, with_input_size(attrs, g.type(g.in(0)).shape));
  if (g.wants(1)) {
    Attrs own = with_kernel(attrs, g.type(g.in(1)).shape);
    if (wants_bias) own.set("bias", true);
    const auto both = g.b.add(op_name(rank, "_weight_grad"), {g.in(0), g.grad()}, own);
    grads[1] = both[0];
    if (wants_bias) grads[2] = both[1];
  } else if (wants_bias) {
    grads[2] = g.b.add1("reduce_to", {g.grad()}, {{"shape", g.type(g.in(2)).shape.dims}});
  }
  return grads;
}

// The op is linear in dy and in w. Its adjoint in dy is the convolution; its adjoint in w is the weight gradient with
// the input and the output gradient exchanged.
std::vector<ValueId> input_grad_gradient(const GradientCall& g) {
  const Attrs attrs = geometry_attrs(g.node);
  const size_t rank = rank_of(g.node);
  std::vector<ValueId> grads(2, kNone);
  if (g.wants(0)) grads[0] = g.b.add1(op_name(rank), {g.grad(), g.in(1)}, attrs);
  if (g.wants(1))
    grads[1] = g.b.add1(op_name(rank, "_weight_grad"), {g.grad(), g.in(0)}, with_kernel(attrs, g.type(g.in(1)).shape));
  return grads;
}

std::vector<ValueId> weight_grad_gradient(const GradientCall& g) {
  std::vector<ValueId> grads(2, kNone);
  const ValueId dw = g.grad(0);
  assert(g.output_grads.size() == 1 || g.output_grads[1] == kNone);
  if (dw == kNone) return grads;
  const Attrs attrs = geometry_attrs(g.node);
  const size_t rank = rank_of(g.node);
  if (g.wants(0))
    grads[0] = g.b.add1(op_name(rank, "_input_grad"), {g.in(1), dw}, with_input_size(attrs, g.type(g.in(0)).shape));
  if (g.wants(1)) grads[1] = g.b.add1(op_name(rank), {g.in(0), dw}, attrs);
  return grads;
}

// A multiplication and an addition for each weight that contributes to an element of y.
double conv_flops(const Shape& w, const Shape& y) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(w.elements() / w.back());
}

OpDef op_of_rank(size_t rank, const char* suffix, Result<Types> (*infer)(size_t, InTypes, const Attrs&)) {
  OpDef op;
  op.name = op_name(rank, suffix);
  op.recompute = Recompute::kCostly;
  op.infer = [rank, infer](InTypes in, const Attrs& attrs) { return infer(rank, in, attrs); };
  op.error_units = 16;
  return op;
}

}  // namespace

OpDef convolution_op(size_t rank) {
  OpDef op = op_of_rank(rank, "", infer_forward);
  op.gradient = forward_gradient;
  op.reference = reference_convolution;
  op.flops = [](InTypes in, InTypes out, const Attrs&) { return conv_flops(in[1].shape, out[0].shape); };
  return op;
}

OpDef convolution_input_grad_op(size_t rank) {
  OpDef op = op_of_rank(rank, "_input_grad", infer_input_grad);
  op.gradient = input_grad_gradient;
  op.reference = reference_convolution_input_grad;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return conv_flops(in[1].shape, in[0].shape); };
  return op;
}

OpDef convolution_weight_grad_op(size_t rank) {
  OpDef op = op_of_rank(rank, "_weight_grad", infer_weight_grad);
  op.gradient = weight_grad_gradient;
  op.reference = reference_convolution_weight_grad;
  op.flops = [](InTypes in, InTypes out, const Attrs&) { return conv_flops(out[0].shape, in[1].shape); };
  return op;
}

Attrs convolution_attrs(Ints strides, Ints pads, Ints dilations, int64_t groups) {
  return {{"strides", std::move(strides)},
          {"pads", std::move(pads)},
          {"dilations", std::move(dilations)},
          {"groups", groups}};
}

Attrs with_attr(Attrs attrs, const std::string& key, Attr value) {
  attrs.set(key, std::move(value));
  return attrs;
}

}  // namespace plimsoll::engine
