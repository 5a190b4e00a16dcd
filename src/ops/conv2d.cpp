// conv2d, conv2d_input_grad (which is also the transposed convolution) and conv2d_weight_grad.
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/util.h"
#include "ops/window.h"

namespace plimsoll::engine {
namespace {

bool check_attrs(InferCheck& check) {
  return check.list("strides", 2, 1) && check.list("pads", 4, 0) && check.list("dilations", 2, 1) &&
         check.integer("groups", 1);
}

std::string window_text(const WindowGeometry& g) {
  return fmt::format("a {}x{} kernel with dilations {},{} over {}", g.kernel[0], g.kernel[1], g.dilations[0],
                     g.dilations[1], g.padded_input());
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

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("conv2d", in, attrs);
  if (!check.inputs(2, 3) || !check.all_floats() || !check.rank(0, 4) || !check.rank(1, 4) || !check_attrs(check))
    return check.failed();
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (!check_channels(check, x[3], w[3], w[2], attrs)) return check.failed();
  if (in.size() == 3) check.require(in[2].shape == Shape{w[3]}, fmt::format("the bias must be [{}]", w[3]));
  const WindowGeometry g = window_geometry(&w.dims[0], &x.dims[1], attrs);
  check.require(g.has_output(), window_text(g) + " has no output");
  return check.outputs({{in[0].dtype, Shape{x[0], g.output[0], g.output[1], w[3]}}});
}

Result<Types> infer_input_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("conv2d_input_grad", in, attrs);
  if (!check.inputs(2) || !check.all_floats() || !check.rank(0, 4) || !check.rank(1, 4) || !check_attrs(check) ||
      !check.list("input_size", 2, 1))
    return check.failed();
  const Shape &dy = in[0].shape, &w = in[1].shape;
  const auto& size = attrs.list("input_size");
  const int64_t channels = w[2] * attrs.integer("groups");
  if (!check.require(dy[3] == w[3], fmt::format("dy has {} channels, but the kernel has {} outputs", dy[3], w[3])) ||
      !check_channels(check, channels, w[3], w[2], attrs))
    return check.failed();
  const WindowGeometry g = window_geometry(&w.dims[0], size.data(), attrs);
  check.require(g.output[0] == dy[1] && g.output[1] == dy[2],
                fmt::format("{} gives {}x{}, but dy is {}x{}", window_text(g), g.output[0], g.output[1], dy[1], dy[2]));
  return check.outputs({{in[0].dtype, Shape{dy[0], size[0], size[1], channels}}});
}

Result<Types> infer_weight_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("conv2d_weight_grad", in, attrs);
  if (!check.inputs(2) || !check.all_floats() || !check.rank(0, 4) || !check.rank(1, 4) || !check_attrs(check) ||
      !check.list("kernel", 2, 1) || !check.optional_flag("bias"))
    return check.failed();
  const Shape &x = in[0].shape, &dy = in[1].shape;
  const auto& kernel = attrs.list("kernel");
  const int64_t groups = attrs.integer("groups");
  if (!check_channels(check, x[3], dy[3], x[3] / groups, attrs)) return check.failed();
  const WindowGeometry g = window_geometry(kernel.data(), &x.dims[1], attrs);
  check.require(dy[0] == x[0] && g.output[0] == dy[1] && g.output[1] == dy[2],
                fmt::format("{} gives [{},{},{}], but dy is [{},{},{}]", window_text(g), x[0], g.output[0], g.output[1],
                            dy[0], dy[1], dy[2]));
  Types types = {{in[0].dtype, Shape{kernel[0], kernel[1], x[3] / groups, dy[3]}}};
  if (attrs.flag("bias")) types.push_back({in[0].dtype, Shape{dy[3]}});
  return check.outputs(std::move(types));
}

Attrs geometry_attrs(const Node& node) {
  Attrs attrs;
  for (const char* key : {"strides", "pads", "dilations", "groups"}) attrs.set(key, node.attrs.items().at(key));
  return attrs;
}

Attrs with_input_size(Attrs attrs, const Shape& x) {
  attrs.set("input_size", std::vector<int64_t>{x[1], x[2]});
  return attrs;
}

Attrs with_kernel(Attrs attrs, const Shape& w) {
  attrs.set("kernel", std::vector<int64_t>{w[0], w[1]});
  return attrs;
}

std::vector<ValueId> forward_gradient(const GradientCall& g) {
  const Attrs attrs = geometry_attrs(g.node);
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  const bool wants_bias = grads.size() == 3 && g.wants(2);
  if (g.wants(0))
    grads[0] = g.b.add1("conv2d_input_grad", {g.grad(), g.in(1)}, with_input_size(attrs, g.type(g.in(0)).shape));
  if (g.wants(1)) {
    Attrs own = with_kernel(attrs, g.type(g.in(1)).shape);
    if (wants_bias) own.set("bias", true);
    const auto both = g.b.add("conv2d_weight_grad", {g.in(0), g.grad()}, own);
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
  std::vector<ValueId> grads(2, kNone);
  if (g.wants(0)) grads[0] = g.b.add1("conv2d", {g.grad(), g.in(1)}, attrs);
  if (g.wants(1))
    grads[1] = g.b.add1("conv2d_weight_grad", {g.grad(), g.in(0)}, with_kernel(attrs, g.type(g.in(1)).shape));
  return grads;
}

std::vector<ValueId> weight_grad_gradient(const GradientCall& g) {
  std::vector<ValueId> grads(2, kNone);
  const ValueId dw = g.grad(0);
  assert(g.output_grads.size() == 1 || g.output_grads[1] == kNone);
  if (dw == kNone) return grads;
  const Attrs attrs = geometry_attrs(g.node);
  if (g.wants(0))
    grads[0] = g.b.add1("conv2d_input_grad", {g.in(1), dw}, with_input_size(attrs, g.type(g.in(0)).shape));
  if (g.wants(1)) grads[1] = g.b.add1("conv2d", {g.in(0), dw}, attrs);
  return grads;
}

// The sizes of one convolution, for any of the three tensors to compute.
struct Conv {
  WindowGeometry g;
  int64_t n, c, o, groups, cg, og;  // cg, og: channels per group

  Conv(const Shape& x, const Shape& w, const Attrs& attrs)
      : g(window_geometry(&w.dims[0], &x.dims[1], attrs)),
        n(x[0]),
        c(x[3]),
        o(w[3]),
        groups(attrs.integer("groups")),
        cg(c / groups),
        og(o / groups) {}

  int64_t taps() const { return g.window_elements(); }
  int64_t input_pixels() const { return n * g.input[0] * g.input[1]; }
  int64_t output_pixels() const { return n * g.output[0] * g.output[1]; }
  bool depthwise() const { return cg == 1 && og == 1; }

  // Returns the pixel of x under a tap of an output pixel, or -1 in the padding.
  int64_t input_under(int64_t output_pixel, int64_t tap) const {
    const int64_t column = output_pixel % g.output[1], row = output_pixel / g.output[1] % g.output[0];
    const int64_t h = g.source(0, row, tap / g.kernel[1]), w = g.source(1, column, tap % g.kernel[1]);
    if (h < 0 || w < 0) return -1;
    return (output_pixel / (g.output[0] * g.output[1]) * g.input[0] + h) * g.input[1] + w;
  }
  // Returns the output pixel that reads an input pixel through a tap, or -1.
  int64_t output_over(int64_t input_pixel, int64_t tap) const {
    const int64_t at[2] = {input_pixel / g.input[1] % g.input[0], input_pixel % g.input[1]};
    const int64_t tap_at[2] = {tap / g.kernel[1], tap % g.kernel[1]};
    int64_t pixel = input_pixel / (g.input[0] * g.input[1]);
    for (int axis : {0, 1}) {
      const int64_t scaled = at[axis] + g.before[axis] - tap_at[axis] * g.dilations[axis];
      if (scaled < 0 || scaled % g.strides[axis] != 0 || scaled / g.strides[axis] >= g.output[axis]) return -1;
      pixel = pixel * g.output[axis] + scaled / g.strides[axis];
    }
    return pixel;
  }
};

// Packs rows, one per pixel: column (tap, channel) of row p is data[pixel(p, tap), channel].
template <typename PixelAt>
GemmPackA pixel_rows(const double* data, int64_t stride, int64_t channels, PixelAt pixel_at) {
  return [=](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* a) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = k0; k < k1;) {
        const int64_t tap = k / channels, channel = k % channels;
        const int64_t run = std::min(k1 - k, channels - channel);
        const int64_t pixel = pixel_at(row + r, tap);
        double* to = a + (k - k0) * kGemmRows + r;
        for (int64_t i = 0; i < run; ++i) to[i * kGemmRows] = pixel < 0 ? 0.0 : data[pixel * stride + channel + i];
        k += run;
      }
  };
}

void reference_forward(const ReferenceCall& call) {
  const Conv conv(call.inputs[0].type.shape, call.inputs[1].type.shape, call.attrs);
  const double *x = in(call, 0), *w = in(call, 1);
  double* y = out(call);
  if (conv.depthwise()) {
    for_each(conv.output_pixels(), conv.taps() * conv.c, [&](int64_t p) {
      std::fill(y + p * conv.o, y + (p + 1) * conv.o, 0.0);
      for (int64_t tap = 0; tap < conv.taps(); ++tap)
        if (const int64_t from = conv.input_under(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) y[p * conv.o + c] += x[from * conv.c + c] * w[tap * conv.o + c];
    });
  } else {
    for (int64_t g = 0; g < conv.groups; ++g)
      gemm(conv.output_pixels(), conv.og, conv.taps() * conv.cg,
           pixel_rows(x + g * conv.cg, conv.c, conv.cg,
                      [&](int64_t p, int64_t tap) { return conv.input_under(p, tap); }),
           {w + g * conv.og, conv.o, 1}, y + g * conv.og, conv.o);
  }
  finish_product(call, conv.output_pixels(), conv.o);
}

void reference_input_grad(const ReferenceCall& call) {
  const Conv conv(call.outputs[0].type.shape, call.inputs[1].type.shape, call.attrs);
  const double *dy = in(call, 0), *w = in(call, 1);
  double* dx = out(call);
  if (conv.depthwise()) {
    for_each(conv.input_pixels(), conv.taps() * conv.c, [&](int64_t p) {
      std::fill(dx + p * conv.c, dx + (p + 1) * conv.c, 0.0);
      for (int64_t tap = 0; tap < conv.taps(); ++tap)
        if (const int64_t from = conv.output_over(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) dx[p * conv.c + c] += dy[from * conv.o + c] * w[tap * conv.o + c];
    });
    return;
  }
  for (int64_t g = 0; g < conv.groups; ++g)  // row (tap, o), column c of B is w[tap, c, o]
    gemm(
        conv.input_pixels(), conv.cg, conv.taps() * conv.og,
        pixel_rows(dy + g * conv.og, conv.o, conv.og, [&](int64_t p, int64_t tap) { return conv.output_over(p, tap); }),
        {w + g * conv.og, 1, conv.o, conv.og, conv.cg * conv.o}, dx + g * conv.cg, conv.c);
}

// Packs the values of x's channel c under a tap, for output pixels k0 to k1.
void pack_weight_row(const Conv& conv, const double* x, int64_t tap, int64_t c, int64_t k0, int64_t k1, double* a) {
  const WindowGeometry& g = conv.g;
  for (int64_t p = k0; p < k1;) {
    const int64_t line = p / g.output[1], column = p % g.output[1];
    const int64_t run = std::min(k1 - p, g.output[1] - column);
    const int64_t h = g.source(0, line % g.output[0], tap / g.kernel[1]);
    for (int64_t i = 0; i < run; ++i) {
      const int64_t w = h < 0 ? -1 : g.source(1, column + i, tap % g.kernel[1]);
      a[(p - k0 + i) * kGemmRows] =
          w < 0 ? 0.0 : x[((line / g.output[0] * g.input[0] + h) * g.input[1] + w) * conv.c + c];
    }
    p += run;
  }
}

void reference_weight_grad(const ReferenceCall& call) {
  const Conv conv(call.inputs[0].type.shape, call.outputs[0].type.shape, call.attrs);
  const double *x = in(call, 0), *dy = in(call, 1);
  double* dw = out(call);
  if (call.outputs.size() == 2)
    sum_channels(out(call, 1), conv.output_pixels(), conv.o, [&](int64_t i, int64_t) { return dy[i]; });
  if (conv.depthwise()) {
    for_each(conv.taps(), conv.output_pixels() * conv.c, [&](int64_t tap) {
      std::fill(dw + tap * conv.o, dw + (tap + 1) * conv.o, 0.0);
      for (int64_t p = 0; p < conv.output_pixels(); ++p)
        if (const int64_t from = conv.input_under(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) dw[tap * conv.o + c] += x[from * conv.c + c] * dy[p * conv.o + c];
    });
    return;
  }
  for (int64_t g = 0; g < conv.groups; ++g) {
    const auto pack = [&](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* a) {
      for (int64_t r = 0; r < rows; ++r)
        pack_weight_row(conv, x + g * conv.cg, (row + r) / conv.cg, (row + r) % conv.cg, k0, k1, a + r);
    };
    gemm(conv.taps() * conv.cg, conv.og, conv.output_pixels(), pack, {dy + g * conv.og, conv.o, 1}, dw + g * conv.og,
         conv.o);
  }
}

double conv_flops(const Shape& w, const Shape& y) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(w[0] * w[1] * w[2]);
}

Attrs geometry(Ints strides, Ints pads, Ints dilations, int64_t groups) {
  return {{"strides", std::move(strides)},
          {"pads", std::move(pads)},
          {"dilations", std::move(dilations)},
          {"groups", groups}};
}

Attrs with(Attrs attrs, const std::string& key, Attr value) {
  attrs.set(key, std::move(value));
  return attrs;
}

OpDef forward_op() {
  OpDef op;
  op.name = "conv2d";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = forward_gradient;
  op.reference = reference_forward;
  op.flops = [](InTypes in, InTypes out, const Attrs&) { return conv_flops(in[1].shape, out[0].shape); };
  op.error_units = 16;
  const std::vector<std::string> two = {"normal", "normal"}, three = {"normal", "normal", "normal"};
  const Attrs same = geometry({1, 1}, {1, 1, 1, 1}, {1, 1}, 1);
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 3}), f32({3, 3, 3, 5}), f32({5})}, same, three, {0, 1, 2}},
      {"one_channel", {f32({2, 6, 6, 1}), f32({3, 3, 1, 17})}, geometry({1, 1}, {0, 0, 0, 0}, {1, 1}, 1), two, {0, 1}},
      {"pointwise", {f32({2, 3, 4, 17}), f32({1, 1, 17, 5})}, geometry({1, 1}, {0, 0, 0, 0}, {1, 1}, 1), two, {0, 1}},
      {"strided",
       {f32({1, 7, 8, 3}), f32({3, 3, 3, 4}), f32({4})},
       geometry({2, 2}, {0, 1, 0, 1}, {1, 1}, 1),
       three,
       {0, 1, 2}},
      {"uneven", {f32({2, 6, 5, 2}), f32({2, 3, 2, 3})}, geometry({2, 1}, {1, 0, 0, 2}, {1, 1}, 1), two, {0, 1}},
      {"dilated", {f32({2, 7, 7, 3}), f32({3, 3, 3, 2})}, geometry({1, 1}, {2, 2, 2, 2}, {2, 2}, 1), two, {0, 1}},
      {"groups",
       {f32({2, 5, 5, 6}), f32({3, 3, 3, 4}), f32({4})},
       geometry({1, 1}, {1, 1, 1, 1}, {1, 1}, 2),
       three,
       {0, 1, 2}},
      {"depthwise",
       {f32({2, 5, 5, 5}), f32({3, 3, 1, 5}), f32({5})},
       geometry({1, 1}, {1, 1, 1, 1}, {1, 1}, 5),
       three,
       {0, 1, 2}},
      {"depthwise_strided",
       {f32({1, 6, 7, 3}), f32({3, 3, 1, 3})},
       geometry({2, 2}, {0, 1, 1, 1}, {1, 1}, 3),
       two,
       {0, 1}},
      {"depth_multiplier",
       {f32({2, 5, 5, 3}), f32({3, 3, 1, 6})},
       geometry({1, 1}, {1, 1, 1, 1}, {1, 1}, 3),
       two,
       {0, 1}},
      {"wide", {f32({2, 8, 8, 32}), f32({3, 3, 32, 32}), f32({32})}, same, three, {2}},
      {"first_layer", {f32({1, 16, 16, 3}), f32({7, 7, 3, 16})}, geometry({2, 2}, {3, 3, 3, 3}, {1, 1}, 1), two, {1}},
      {"relu", {f32({2, 5, 5, 3}), f32({3, 3, 3, 8}), f32({8})}, with(same, "activation", "relu"), three, {}},
      {"uneven_relu",
       {f32({3, 9, 8, 4}), f32({5, 3, 4, 7}), f32({7})},
       with(geometry({2, 1}, {2, 1, 0, 2}, {1, 2}, 1), "activation", "relu"),
       three,
       {}},
  };
  return op;
}

OpDef input_grad_op() {
  OpDef op;
  op.name = "conv2d_input_grad";
  op.recompute = Recompute::kCostly;
  op.infer = infer_input_grad;
  op.gradient = input_grad_gradient;
  op.reference = reference_input_grad;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return conv_flops(in[1].shape, in[0].shape); };
  op.error_units = 16;
  const std::vector<std::string> two = {"normal", "normal"};
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints size) {
    return with(geometry(std::move(strides), std::move(pads), std::move(dilations), groups), "input_size",
                std::move(size));
  };
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 5}), f32({3, 3, 3, 5})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {5, 6}), two, {0, 1}},
      {"transposed",
       {f32({1, 3, 4, 17}), f32({3, 3, 5, 17})},
       attrs({2, 2}, {0, 1, 0, 1}, {1, 1}, 1, {6, 8}),
       two,
       {0, 1}},
      {"upsampling2x2",
       {f32({2, 3, 3, 4}), f32({2, 2, 3, 4})},
       attrs({2, 2}, {0, 0, 0, 0}, {1, 1}, 1, {6, 6}),
       two,
       {0, 1}},
      {"rest", {f32({1, 2, 2, 3}), f32({2, 2, 1, 3})}, attrs({3, 3}, {0, 0, 0, 0}, {1, 1}, 1, {7, 6}), two, {0, 1}},
      {"dilated", {f32({1, 5, 5, 3}), f32({3, 3, 2, 3})}, attrs({1, 1}, {2, 2, 2, 2}, {2, 2}, 1, {5, 5}), two, {0, 1}},
      {"groups", {f32({2, 4, 4, 4}), f32({3, 3, 3, 4})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 2, {4, 4}), two, {0, 1}},
      {"depthwise",
       {f32({2, 3, 3, 5}), f32({3, 3, 1, 5})},
       attrs({2, 2}, {1, 1, 1, 1}, {1, 1}, 5, {5, 6}),
       two,
       {0, 1}},
  };
  return op;
}

OpDef weight_grad_op() {
  OpDef op;
  op.name = "conv2d_weight_grad";
  op.recompute = Recompute::kCostly;
  op.infer = infer_weight_grad;
  op.gradient = weight_grad_gradient;
  op.reference = reference_weight_grad;
  op.flops = [](InTypes in, InTypes out, const Attrs&) { return conv_flops(out[0].shape, in[1].shape); };
  op.error_units = 16;
  const std::vector<std::string> two = {"normal", "normal"};
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints kernel) {
    return with(geometry(std::move(strides), std::move(pads), std::move(dilations), groups), "kernel",
                std::move(kernel));
  };
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 3}), f32({2, 5, 6, 5})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {3, 3}), two, {0, 1}},
      {"bias",
       {f32({2, 5, 6, 3}), f32({2, 5, 6, 5})},
       with(attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {3, 3}), "bias", true),
       two,
       {}},
      {"strided", {f32({1, 7, 8, 3}), f32({1, 3, 4, 17})}, attrs({2, 2}, {0, 0, 0, 1}, {1, 1}, 1, {3, 3}), two, {0, 1}},
      {"dilated", {f32({1, 7, 7, 2}), f32({1, 7, 7, 3})}, attrs({1, 1}, {2, 2, 2, 2}, {2, 2}, 1, {3, 3}), two, {0, 1}},
      {"uneven_bias",
       {f32({3, 9, 8, 4}), f32({3, 4, 6, 7})},
       with(attrs({2, 1}, {2, 1, 0, 2}, {1, 2}, 1, {5, 3}), "bias", true),
       two,
       {}},
      {"groups_bias",
       {f32({2, 4, 4, 6}), f32({2, 4, 4, 4})},
       with(attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 2, {3, 3}), "bias", true),
       two,
       {}},
      {"depthwise",
       {f32({2, 5, 5, 5}), f32({2, 5, 5, 5})},
       attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 5, {3, 3}),
       two,
       {0, 1}},
      {"pointwise",
       {f32({2, 3, 3, 32}), f32({2, 3, 3, 17})},
       attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1, {1, 1}),
       two,
       {0, 1}},
  };
  return op;
}

}  // namespace

std::vector<OpDef> conv2d_ops() {
  return {forward_op(), input_grad_op(), weight_grad_op()};
}

}  // namespace plimsoll::engine
