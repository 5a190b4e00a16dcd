// Pooling over windows of 2 or 3 spatial dimensions: max_pool2d and max_pool3d with the position of each maximum,
// avg_pool2d and avg_pool3d, which do not count the padding, and their gradients.
#include <array>
#include <limits>

#include "ops/families.h"
#include "ops/pooling.h"
#include "ops/window.h"

namespace plimsoll::engine {
namespace {

// The position of a maximum takes one byte if the window is small enough.
DType index_dtype(int64_t window_elements) {
  constexpr int64_t kMostInAByte = 255;
  return window_elements <= kMostInAByte ? DType::kUInt8 : DType::kInt32;
}

bool check_attrs(InferCheck& check, size_t rank, const Attrs& attrs) {
  if (!check.list("pool", rank, 1) || !check.list("strides", rank, 1) || !check.list("pads", 2 * rank, 0)) return false;
  const auto &pool = attrs.list("pool"), &pads = attrs.list("pads");
  bool smaller = true;
  for (size_t side = 0; side < pads.size(); ++side) smaller = smaller && pads[side] < pool[side / 2];
  return check.require(smaller, fmt::format("pads=[{}] must be smaller than pool=[{}], or a window may be empty",
                                            fmt::join(pads, ","), fmt::join(pool, ",")));
}

// `input` begins with the image sizes.
WindowGeometry geometry_of(const int64_t* input, const Attrs& attrs) {
  return window_geometry(attrs.list("pool").data(), input, attrs);
}

std::string sizes_text(const WindowGeometry& g, const WindowGeometry::Sizes& sizes, std::string_view separator) {
  return fmt::format("{}", fmt::join(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(g.rank), separator));
}

std::string window_text(const WindowGeometry& g) {
  return fmt::format("{} windows with strides {} over {}", sizes_text(g, g.kernel, "x"), sizes_text(g, g.strides, ","),
                     g.padded_input());
}

// [samples, sizes..., channels]
Shape image_shape(int64_t samples, const int64_t* sizes, size_t rank, int64_t channels) {
  std::vector<int64_t> dims = {samples};
  dims.insert(dims.end(), sizes, sizes + rank);
  dims.push_back(channels);
  return Shape(std::move(dims));
}

Result<Types> infer_forward(size_t rank, std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, rank + 2) || !check_attrs(check, rank, attrs))
    return check.failed();
  const Shape& x = in[0].shape;
  const WindowGeometry g = geometry_of(&x.dims[1], attrs);
  check.require(g.has_output(), window_text(g) + " have no output");
  const Shape y = image_shape(x[0], g.output.data(), rank, x.back());
  if (!with_index) return check.outputs({{in[0].dtype, y}});
  check.require(g.window_elements() <= INT32_MAX,
                fmt::format("a window may have at most 2^31 elements, not {}", sizes_text(g, g.kernel, "x")));
  return check.outputs({{in[0].dtype, y}, {index_dtype(g.window_elements()), y}});
}

Result<Types> infer_grad(size_t rank, std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(with_index ? 2 : 1) || !check.floats({0}) || !check.rank(0, rank + 2) ||
      !check_attrs(check, rank, attrs) || !check.list("input_size", rank, 1))
    return check.failed();
  const Shape& dy = in[0].shape;
  const auto& size = attrs.list("input_size");
  const WindowGeometry g = geometry_of(size.data(), attrs);
  if (with_index && (!check.type(1, index_dtype(g.window_elements())) || !check.same_shape(0, 1)))
    return check.failed();
  const Ints given(dy.dims.begin() + 1, dy.dims.end() - 1);
  check.require(
      std::equal(given.begin(), given.end(), g.output.begin()),
      fmt::format("{} give {}, but dy is {}", window_text(g), sizes_text(g, g.output, "x"), fmt::join(given, "x")));
  return check.outputs({{in[0].dtype, image_shape(dy[0], size.data(), rank, dy.back())}});
}

template <size_t kRank>
Result<Types> infer_forward_of(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  return infer_forward(kRank, name, with_index, in, attrs);
}
template <size_t kRank>
Result<Types> infer_grad_of(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  return infer_grad(kRank, name, with_index, in, attrs);
}

// An output position, or a position in a window: depth (0 for images), row, column.
using Place = std::array<int64_t, kMostSpatial>;

// The sizes as those of an image with three dimensions: images have depth 1.
WindowGeometry as_volume(const WindowGeometry& g) {
  if (g.rank == kMostSpatial) return g;
  WindowGeometry volume = g;
  volume.rank = kMostSpatial;
  const auto add_depth = [](WindowGeometry::Sizes& sizes, int64_t depth) { sizes = {depth, sizes[0], sizes[1]}; };
  for (auto* sizes : {&volume.kernel, &volume.strides, &volume.dilations, &volume.input, &volume.output})
    add_depth(*sizes, 1);
  for (auto* pads : {&volume.before, &volume.after}) add_depth(*pads, 0);
  return volume;
}

WindowGeometry volume_of(const Shape& image, const Attrs& attrs) {
  return as_volume(geometry_of(&image.dims[1], attrs));
}

// Calls body(sample, number of the output pixel, its place) for the output pixels of a sample in order; samples run in
// parallel.
template <typename Body>
void for_pixels(int64_t samples, const WindowGeometry& g, int64_t channels, Body body) {
  const auto& size = g.output;
  for_each(samples, size[0] * size[1] * size[2] * channels, [&](int64_t n) {
    int64_t pixel = n * size[0] * size[1] * size[2];
    for (int64_t d = 0; d < size[0]; ++d)
      for (int64_t h = 0; h < size[1]; ++h)
        for (int64_t w = 0; w < size[2]; ++w) body(n, pixel++, Place{d, h, w});
  });
}

// Calls body(tap, pixel) for the window's elements inside the image, row-major.
template <typename Body>
void for_window(const WindowGeometry& g, int64_t n, const Place& at, Body body) {
  for (int64_t i = 0; i < g.kernel[0]; ++i)
    for (int64_t j = 0; j < g.kernel[1]; ++j)
      for (int64_t k = 0; k < g.kernel[2]; ++k) {
        const int64_t plane = g.source(0, at[0], i), row = g.source(1, at[1], j), column = g.source(2, at[2], k);
        if (plane >= 0 && row >= 0 && column >= 0)
          body((i * g.kernel[1] + j) * g.kernel[2] + k,
               ((n * g.input[0] + plane) * g.input[1] + row) * g.input[2] + column);
      }
}

template <typename Index>
void max_of_windows(const ReferenceCall& call, Index* indices) {
  const Shape& x = call.inputs[0].type.shape;
  const WindowGeometry g = volume_of(x, call.attrs);
  const int64_t channels = x.back();
  for_pixels(x[0], g, channels, [&](int64_t n, int64_t at, const Place& place) {
    double* best = out(call) + at * channels;
    Index* index = indices + at * channels;
    bool first = true;
    for_window(g, n, place, [&](int64_t tap, int64_t pixel) {
      const double* from = in(call, 0) + pixel * channels;
      for (int64_t c = 0; c < channels; ++c)
        if (first || from[c] > best[c]) {
          best[c] = from[c];
          index[c] = static_cast<Index>(tap);
        }
      first = false;
    });
  });
}

template <typename Index>
void gradient_of_max(const ReferenceCall& call, const Index* indices) {
  const Shape& dx = call.outputs[0].type.shape;
  const WindowGeometry g = volume_of(dx, call.attrs);
  const int64_t channels = dx.back();
  std::fill_n(out(call), dx.elements(), 0.0);
  for_pixels(dx[0], g, channels, [&](int64_t n, int64_t at, const Place& place) {
    for_window(g, n, place, [&](int64_t tap, int64_t pixel) {
      for (int64_t i = at * channels, c = 0; c < channels; ++c, ++i)
        if (static_cast<int64_t>(indices[i]) == tap) out(call)[pixel * channels + c] += in(call, 0)[i];
    });
  });
}

void reference_max(const ReferenceCall& call) {
  const TensorView& index = call.outputs[1];
  if (index.type.dtype == DType::kUInt8)
    max_of_windows(call, index.as<uint8_t>());
  else
    max_of_windows(call, index.as<int32_t>());
}

void reference_max_grad(const ReferenceCall& call) {
  const TensorView& index = call.inputs[1];
  if (index.type.dtype == DType::kUInt8)
    gradient_of_max(call, index.as<uint8_t>());
  else
    gradient_of_max(call, index.as<int32_t>());
}

double window_count(const WindowGeometry& g, const Place& place) {
  int64_t count = 0;
  for_window(g, 0, place, [&](int64_t, int64_t) { ++count; });
  return static_cast<double>(count);
}

void reference_avg(const ReferenceCall& call) {
  const Shape& x = call.inputs[0].type.shape;
  const WindowGeometry g = volume_of(x, call.attrs);
  const int64_t channels = x.back();
  for_pixels(x[0], g, channels, [&](int64_t n, int64_t at, const Place& place) {
    double* sum = out(call) + at * channels;
    std::fill_n(sum, channels, 0.0);
    for_window(g, n, place, [&](int64_t, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c) sum[c] += in(call, 0)[pixel * channels + c];
    });
    const double count = window_count(g, place);
    for (int64_t c = 0; c < channels; ++c) sum[c] /= count;
  });
}

void reference_avg_grad(const ReferenceCall& call) {
  const Shape& dx = call.outputs[0].type.shape;
  const WindowGeometry g = volume_of(dx, call.attrs);
  const int64_t channels = dx.back();
  std::fill_n(out(call), dx.elements(), 0.0);
  for_pixels(dx[0], g, channels, [&](int64_t n, int64_t at, const Place& place) {
    const double* from = in(call, 0) + at * channels;
    const double count = window_count(g, place);
    for_window(g, n, place, [&](int64_t, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c) out(call)[pixel * channels + c] += from[c] / count;
    });
  });
}

double window_flops(const Attrs& attrs, const Shape& y) {
  double elements = 1;
  for (int64_t size : attrs.list("pool")) elements *= static_cast<double>(size);
  return elements * static_cast<double>(y.elements());
}

Attrs pooling(Ints pool, Ints strides, Ints pads) {
  return {{"pool", std::move(pool)}, {"strides", std::move(strides)}, {"pads", std::move(pads)}};
}

Attrs pooling(Ints pool, Ints strides, Ints pads, Ints input_size) {
  Attrs attrs = pooling(std::move(pool), std::move(strides), std::move(pads));
  attrs.set("input_size", std::move(input_size));
  return attrs;
}

// Sums over large windows are of integers, which every order of additions adds up alike.
std::vector<OpCase> forward_cases(size_t rank, bool sums) {
  const std::vector<std::string> fill = {"distinct"}, large = {sums ? "integers:9" : "distinct"};
  if (rank == 2)
    return {{"2x2", {f32({2, 6, 6, 5})}, pooling({2, 2}, {2, 2}, {0, 0, 0, 0}), fill, {0}},
            {"rest", {f32({1, 5, 7, 3})}, pooling({2, 2}, {2, 2}, {0, 0, 0, 0}), fill, {0}},
            {"same", {f32({2, 7, 6, 17})}, pooling({3, 3}, {2, 2}, {1, 1, 0, 1}), fill, {0}},
            {"overlapping", {f32({2, 5, 5, 1})}, pooling({3, 3}, {1, 1}, {1, 1, 1, 1}), fill, {0}},
            {"uneven", {f32({1, 6, 5, 4})}, pooling({3, 2}, {1, 2}, {2, 0, 0, 1}), fill, {0}},
            {"whole", {f32({1, 4, 4, 32})}, pooling({4, 4}, {4, 4}, {0, 0, 0, 0}), fill, {0}},
            {"large_window", {f32({2, 19, 20, 3})}, pooling({16, 17}, {3, 2}, {1, 0, 2, 1}), large, {0}}};
  return {{"2x2x2", {f32({2, 4, 6, 4, 5})}, pooling({2, 2, 2}, {2, 2, 2}, Ints(6, 0)), fill, {0}},
          {"rest", {f32({1, 3, 5, 7, 3})}, pooling({2, 2, 2}, {2, 2, 2}, Ints(6, 0)), fill, {0}},
          {"same", {f32({2, 3, 5, 4, 17})}, pooling({3, 3, 3}, {2, 2, 2}, {1, 1, 1, 1, 0, 1}), fill, {0}},
          {"overlapping", {f32({2, 3, 4, 4, 1})}, pooling({3, 2, 3}, {1, 1, 1}, {1, 1, 0, 1, 1, 1}), fill, {0}},
          {"uneven", {f32({1, 4, 6, 5, 8})}, pooling({1, 3, 2}, {2, 1, 2}, {0, 0, 2, 0, 0, 1}), fill, {0}},
          {"large_window", {f32({1, 7, 8, 9, 4})}, pooling({6, 7, 7}, {1, 2, 2}, {0, 1, 2, 0, 0, 0}), large, {0}}};
}

OpDef forward_op(size_t rank, const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, rank == 2 ? infer_forward_of<2> : infer_forward_of<3>, reference);
  op.gradient = pooling_gradient(name, with_index);
  op.flops = [](InTypes, InTypes out, const Attrs& attrs) { return window_flops(attrs, out[0].shape); };
  op.error_units = with_index ? 0 : 4;
  op.cases = forward_cases(rank, !with_index);
  return op;
}

OpDef grad_op(size_t rank, const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, rank == 2 ? infer_grad_of<2> : infer_grad_of<3>, reference);
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return window_flops(attrs, in[0].shape); };
  const auto add_case = [&](const std::string& label, const TensorType& dy, Attrs attrs, const std::string& fill,
                            DType dtype = DType::kUInt8) {
    std::optional<PoolingIndex> index;
    if (with_index) index = PoolingIndex{dtype, fill};
    op.cases.push_back(pooling_grad_case(label, dy, std::move(attrs), index));
  };
  // With padding, a random position may lie in the padding; the middle never does.
  if (rank == 2) {
    add_case("2x2", f32({2, 3, 3, 5}), pooling({2, 2}, {2, 2}, {0, 0, 0, 0}, {6, 6}), "labels:4");
    add_case("rest", f32({1, 2, 3, 3}), pooling({2, 2}, {2, 2}, {0, 0, 0, 0}, {5, 7}), "labels:4");
    add_case("overlapping", f32({2, 3, 3, 17}), pooling({3, 3}, {1, 1}, {0, 0, 0, 0}, {5, 5}), "labels:9");
    add_case("padded", f32({2, 4, 3, 1}), pooling({3, 3}, {2, 2}, {1, 1, 0, 1}, {7, 6}), "value:4");
    add_case("large_window", f32({2, 2, 3, 5}), pooling({16, 17}, {3, 2}, {0, 0, 0, 0}, {20, 22}), "labels:272",
             DType::kInt32);
  } else {
    add_case("2x2x2", f32({2, 2, 3, 2, 5}), pooling({2, 2, 2}, {2, 2, 2}, Ints(6, 0), {4, 6, 4}), "labels:8");
    add_case("rest", f32({1, 1, 2, 3, 3}), pooling({2, 2, 2}, {2, 2, 2}, Ints(6, 0), {3, 5, 7}), "labels:8");
    add_case("overlapping", f32({2, 2, 3, 2, 17}), pooling({3, 3, 2}, {1, 1, 1}, Ints(6, 0), {4, 5, 3}), "labels:18");
    add_case("padded", f32({2, 2, 4, 3, 1}), pooling({3, 3, 3}, {2, 2, 2}, {1, 1, 1, 1, 0, 1}, {3, 7, 6}), "value:13");
    add_case("large_window", f32({1, 2, 2, 2, 4}), pooling({6, 7, 7}, {1, 2, 1}, Ints(6, 0), {7, 9, 8}), "labels:294",
             DType::kInt32);
  }
  return op;
}

std::vector<OpDef> ops_of(size_t rank) {
  const std::string max = fmt::format("max_pool{}d", rank), average = fmt::format("avg_pool{}d", rank);
  return {forward_op(rank, max, true, reference_max), grad_op(rank, max + "_grad", true, reference_max_grad),
          forward_op(rank, average, false, reference_avg), grad_op(rank, average + "_grad", false, reference_avg_grad)};
}

}  // namespace

std::vector<OpDef> pool2d_ops() {
  return ops_of(2);
}
std::vector<OpDef> pool3d_ops() {
  return ops_of(3);
}

}  // namespace plimsoll::engine
