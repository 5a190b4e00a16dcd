// max_pool2d with the position of each maximum, avg_pool2d, which does not count the padding, and their gradients.
#include <limits>

#include "ops/families.h"
#include "ops/pooling.h"
#include "ops/window.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kLargestWindow = 255;  // positions must fit the u8 index

bool check_attrs(InferCheck& check, const Attrs& attrs) {
  if (!check.list("pool", 2, 1) || !check.list("strides", 2, 1) || !check.list("pads", 4, 0)) return false;
  const auto &pool = attrs.list("pool"), &pads = attrs.list("pads");
  return check.require(std::max(pads[0], pads[1]) < pool[0] && std::max(pads[2], pads[3]) < pool[1],
                       fmt::format("pads=[{}] must be smaller than pool=[{}], or a window may be empty",
                                   fmt::join(pads, ","), fmt::join(pool, ",")));
}

// `input` begins with the image sizes.
WindowGeometry geometry_of(const int64_t* input, const Attrs& attrs) {
  return window_geometry(attrs.list("pool").data(), input, attrs);
}

std::string window_text(const WindowGeometry& g) {
  return fmt::format("{}x{} windows with strides {},{} over {}", g.kernel[0], g.kernel[1], g.strides[0], g.strides[1],
                     g.padded_input());
}

Result<Types> infer_forward(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, 4) || !check_attrs(check, attrs)) return check.failed();
  const Shape& x = in[0].shape;
  const WindowGeometry g = geometry_of(&x.dims[1], attrs);
  check.require(g.has_output(), window_text(g) + " have no output");
  const Shape y{x[0], g.output[0], g.output[1], x[3]};
  if (!with_index) return check.outputs({{in[0].dtype, y}});
  check.require(g.window_elements() <= kLargestWindow,
                fmt::format("a window may have at most {} elements, not {}", kLargestWindow, g.window_elements()));
  return check.outputs({{in[0].dtype, y}, {DType::kUInt8, y}});
}

Result<Types> infer_grad(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(with_index ? 2 : 1) || !check.floats({0}) || !check.rank(0, 4) || !check_attrs(check, attrs) ||
      !check.list("input_size", 2, 1))
    return check.failed();
  if (with_index && (!check.type(1, DType::kUInt8) || !check.same_shape(0, 1))) return check.failed();
  const Shape& dy = in[0].shape;
  const auto& size = attrs.list("input_size");
  const WindowGeometry g = geometry_of(size.data(), attrs);
  check.require(g.output[0] == dy[1] && g.output[1] == dy[2],
                fmt::format("{} give {}x{}, but dy is {}x{}", window_text(g), g.output[0], g.output[1], dy[1], dy[2]));
  return check.outputs({{in[0].dtype, Shape{dy[0], size[0], size[1], dy[3]}}});
}

// Calls body(sample, row, column) for the output pixels of a sample in order; samples run in parallel.
template <typename Body>
void for_pixels(int64_t samples, const WindowGeometry::Sizes& size, int64_t channels, Body body) {
  for_each(samples, size[0] * size[1] * channels, [&](int64_t n) {
    for (int64_t h = 0; h < size[0]; ++h)
      for (int64_t w = 0; w < size[1]; ++w) body(n, h, w);
  });
}

// Calls body(tap, pixel) for the window's elements inside the image, row-major.
template <typename Body>
void for_window(const WindowGeometry& g, int64_t n, int64_t h, int64_t w, Body body) {
  for (int64_t i = 0; i < g.kernel[0]; ++i)
    for (int64_t j = 0; j < g.kernel[1]; ++j) {
      const int64_t row = g.source(0, h, i), column = g.source(1, w, j);
      if (row >= 0 && column >= 0) body(i * g.kernel[1] + j, (n * g.input[0] + row) * g.input[1] + column);
    }
}

void reference_max(const ReferenceCall& call) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  const WindowGeometry g = geometry_of(&x.dims[1], call.attrs);
  const int64_t channels = x[3];
  for_pixels(x[0], g.output, channels, [&](int64_t n, int64_t h, int64_t w) {
    const int64_t at = ((n * y[1] + h) * y[2] + w) * channels;
    double* best = out(call) + at;
    uint8_t* index = call.outputs[1].as<uint8_t>() + at;
    bool first = true;
    for_window(g, n, h, w, [&](int64_t tap, int64_t pixel) {
      const double* from = in(call, 0) + pixel * channels;
      for (int64_t c = 0; c < channels; ++c)
        if (first || from[c] > best[c]) {
          best[c] = from[c];
          index[c] = static_cast<uint8_t>(tap);
        }
      first = false;
    });
  });
}

void reference_max_grad(const ReferenceCall& call) {
  const Shape &dy = call.inputs[0].type.shape, &dx = call.outputs[0].type.shape;
  const WindowGeometry g = geometry_of(&dx.dims[1], call.attrs);
  const int64_t channels = dx[3];
  std::fill_n(out(call), dx.elements(), 0.0);
  for_pixels(dy[0], g.output, channels, [&](int64_t n, int64_t h, int64_t w) {
    const int64_t at = ((n * dy[1] + h) * dy[2] + w) * channels;
    for_window(g, n, h, w, [&](int64_t tap, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c)
        if (call.inputs[1].as<uint8_t>()[at + c] == tap) out(call)[pixel * channels + c] += in(call, 0)[at + c];
    });
  });
}

int64_t window_count(const WindowGeometry& g, int64_t h, int64_t w) {
  int64_t count = 0;
  for_window(g, 0, h, w, [&](int64_t, int64_t) { ++count; });
  return count;
}

void reference_avg(const ReferenceCall& call) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  const WindowGeometry g = geometry_of(&x.dims[1], call.attrs);
  const int64_t channels = x[3];
  for_pixels(x[0], g.output, channels, [&](int64_t n, int64_t h, int64_t w) {
    double* sum = out(call) + ((n * y[1] + h) * y[2] + w) * channels;
    std::fill_n(sum, channels, 0.0);
    for_window(g, n, h, w, [&](int64_t, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c) sum[c] += in(call, 0)[pixel * channels + c];
    });
    const auto count = static_cast<double>(window_count(g, h, w));
    for (int64_t c = 0; c < channels; ++c) sum[c] /= count;
  });
}

void reference_avg_grad(const ReferenceCall& call) {
  const Shape &dy = call.inputs[0].type.shape, &dx = call.outputs[0].type.shape;
  const WindowGeometry g = geometry_of(&dx.dims[1], call.attrs);
  const int64_t channels = dx[3];
  std::fill_n(out(call), dx.elements(), 0.0);
  for_pixels(dy[0], g.output, channels, [&](int64_t n, int64_t h, int64_t w) {
    const double* from = in(call, 0) + ((n * dy[1] + h) * dy[2] + w) * channels;
    const auto count = static_cast<double>(window_count(g, h, w));
    for_window(g, n, h, w, [&](int64_t, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c) out(call)[pixel * channels + c] += from[c] / count;
    });
  });
}

double window_flops(const Attrs& attrs, const Shape& y) {
  const auto& pool = attrs.list("pool");
  return static_cast<double>(pool[0] * pool[1]) * static_cast<double>(y.elements());
}

Attrs pooling(Ints pool, Ints strides, Ints pads) {
  return {{"pool", std::move(pool)}, {"strides", std::move(strides)}, {"pads", std::move(pads)}};
}

Attrs pooling(Ints pool, Ints strides, Ints pads, Ints input_size) {
  Attrs attrs = pooling(std::move(pool), std::move(strides), std::move(pads));
  attrs.set("input_size", std::move(input_size));
  return attrs;
}

std::vector<OpCase> forward_cases() {
  const std::vector<std::string> fill = {"distinct"};
  return {{"2x2", {f32({2, 6, 6, 5})}, pooling({2, 2}, {2, 2}, {0, 0, 0, 0}), fill, {0}},
          {"rest", {f32({1, 5, 7, 3})}, pooling({2, 2}, {2, 2}, {0, 0, 0, 0}), fill, {0}},
          {"same", {f32({2, 7, 6, 17})}, pooling({3, 3}, {2, 2}, {1, 1, 0, 1}), fill, {0}},
          {"overlapping", {f32({2, 5, 5, 1})}, pooling({3, 3}, {1, 1}, {1, 1, 1, 1}), fill, {0}},
          {"uneven", {f32({1, 6, 5, 4})}, pooling({3, 2}, {1, 2}, {2, 0, 0, 1}), fill, {0}},
          {"whole", {f32({1, 4, 4, 32})}, pooling({4, 4}, {4, 4}, {0, 0, 0, 0}), fill, {0}}};
}

OpDef forward_op(const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, infer_forward, reference);
  op.gradient = pooling_gradient(name, with_index);
  op.flops = [](InTypes, InTypes out, const Attrs& attrs) { return window_flops(attrs, out[0].shape); };
  op.error_units = with_index ? 0 : 4;
  op.cases = forward_cases();
  return op;
}

OpDef grad_op(const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, infer_grad, reference);
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return window_flops(attrs, in[0].shape); };
  const auto add_case = [&](const std::string& label, const TensorType& dy, Attrs attrs, const std::string& fill) {
    std::optional<PoolingIndex> index;
    if (with_index) index = PoolingIndex{DType::kUInt8, fill};
    op.cases.push_back(pooling_grad_case(label, dy, std::move(attrs), index));
  };
  add_case("2x2", f32({2, 3, 3, 5}), pooling({2, 2}, {2, 2}, {0, 0, 0, 0}, {6, 6}), "labels:4");
  add_case("rest", f32({1, 2, 3, 3}), pooling({2, 2}, {2, 2}, {0, 0, 0, 0}, {5, 7}), "labels:4");
  add_case("overlapping", f32({2, 3, 3, 17}), pooling({3, 3}, {1, 1}, {0, 0, 0, 0}, {5, 5}), "labels:9");
  // With padding, a random position may lie in the padding; the middle never does.
  add_case("padded", f32({2, 4, 3, 1}), pooling({3, 3}, {2, 2}, {1, 1, 0, 1}, {7, 6}), "value:4");
  return op;
}

}  // namespace

std::vector<OpDef> pool2d_ops() {
  return {forward_op("max_pool2d", true, reference_max), grad_op("max_pool2d_grad", true, reference_max_grad),
          forward_op("avg_pool2d", false, reference_avg), grad_op("avg_pool2d_grad", false, reference_avg_grad)};
}

}  // namespace plimsoll::engine
