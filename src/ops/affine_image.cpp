// affine_image: each output pixel reads the input image at an affine function of its own position, which differs from
// sample to sample. affine_image_grad is its adjoint, so the gradient is exact. (TensorFlow applies the inverse
// transform instead, which is an approximation.) The transforms have no gradient.
#include "ops/affine_image.h"

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.floats({1}) || !check.rank(0, 4) || !check.rank(1, 2) ||
      !check.has("interpolation", "text") || !check.has("fill_mode", "text") || !check.real("fill_value"))
    return check.failed();
  const std::string &way = attrs.text("interpolation"), &mode = attrs.text("fill_mode");
  check.require(in[1].shape == Shape{in[0].shape[0], 6}, "the transforms must be [N, 6]");
  check.require(way == "nearest" || way == "bilinear",
                fmt::format("interpolation=\"{}\" must be nearest or bilinear", way));
  check.require(fill_mode(mode).has_value(),
                fmt::format("fill_mode=\"{}\" must be constant, reflect, wrap or nearest", mode));
  return check.outputs({in[0]});
}

struct Images {
  int64_t batch, height, width, channels;
  FillMode mode;
  bool nearest;

  explicit Images(const ReferenceCall& call)
      : batch(call.inputs[0].type.shape[0]),
        height(call.inputs[0].type.shape[1]),
        width(call.inputs[0].type.shape[2]),
        channels(call.inputs[0].type.shape[3]),
        mode(*fill_mode(call.attrs.text("fill_mode"))),
        nearest(call.attrs.text("interpolation") == "nearest") {}

  int64_t sample() const { return height * width * channels; }

  // Calls body(the output pixel, its taps) for every pixel of sample n.
  template <typename Body>
  void for_pixels(const ReferenceCall& call, int64_t n, Body body) const {
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        body(y * width + x, pixel_taps(in(call, 1) + n * 6, x, y, height, width, mode, nearest));
  }
};

void reference_affine(const ReferenceCall& call) {
  const Images images(call);
  const double fill = call.attrs.real("fill_value");
  for_each(images.batch, images.sample(), [&](int64_t n) {
    const double* from = in(call, 0) + n * images.sample();
    images.for_pixels(call, n, [&](int64_t pixel, const PixelTaps<double>& taps) {
      for (int64_t c = 0; c < images.channels; ++c) {
        double sum = 0;
        for (int t = 0; t < taps.count; ++t)
          sum += taps.weight[t] * (taps.pixel[t] < 0 ? fill : from[taps.pixel[t] * images.channels + c]);
        out(call)[n * images.sample() + pixel * images.channels + c] = sum;
      }
    });
  });
}

void reference_affine_grad(const ReferenceCall& call) {
  const Images images(call);
  std::fill_n(out(call), images.batch * images.sample(), 0.0);
  for_each(images.batch, images.sample(), [&](int64_t n) {
    const double* from = in(call, 0) + n * images.sample();
    double* to = out(call) + n * images.sample();
    images.for_pixels(call, n, [&](int64_t pixel, const PixelTaps<double>& taps) {
      for (int t = 0; t < taps.count; ++t)
        for (int64_t c = 0; taps.pixel[t] >= 0 && c < images.channels; ++c)
          to[taps.pixel[t] * images.channels + c] += taps.weight[t] * from[pixel * images.channels + c];
    });
  });
}

OpDef make(const std::string& name, const std::string& adjoint, void (*reference)(const ReferenceCall&)) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer(name, in, attrs); };
  op.gradient = [adjoint](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    Attrs attrs = g.node.attrs;
    attrs.set("fill_value", 0.0);  // the gradient of x -> A x + b
    return {g.b.add1(adjoint, {g.grad(), g.in(1)}, attrs), kNone};
  };
  op.reference = reference;
  op.flops = [](InTypes, InTypes out, const Attrs&) { return 10.0 * static_cast<double>(out[0].shape.elements()); };
  op.error_units = 256;  // a position of 10 pixels has an error of 10 units, and up to 4 pixels are weighted by it
  return op;
}

Attrs attrs(const std::string& mode, const std::string& way, double fill) {
  return {{"interpolation", way}, {"fill_mode", mode}, {"fill_value", fill}};
}

}  // namespace

std::vector<OpDef> affine_image_ops() {
  OpDef op = make("affine_image", "affine_image_grad", reference_affine);
  OpDef grad = make("affine_image_grad", "affine_image", reference_affine_grad);
  const std::vector<std::string> near = {"normal", "uniform"}, far = {"normal", "integers:9"};
  for (const char* mode : {"constant", "reflect", "wrap", "nearest"}) {
    const std::string name = mode;
    op.cases.push_back({name, {f32({3, 6, 5, 4}), f32({3, 6})}, attrs(mode, "bilinear", 0.5), near, {0}});
    op.cases.push_back({name + "_nearest", {f32({2, 5, 7, 3}), f32({2, 6})}, attrs(mode, "nearest", -2), near, {0}});
    op.cases.push_back({name + "_far", {f32({4, 3, 4, 1}), f32({4, 6})}, attrs(mode, "bilinear", 1), far, {0}});
    grad.cases.push_back({name, {f32({3, 6, 5, 4}), f32({3, 6})}, attrs(mode, "bilinear", 0), near, {0}});
  }
  op.cases.push_back({"one_pixel", {f32({2, 1, 1, 3}), f32({2, 6})}, attrs("wrap", "bilinear", 0), near, {0}});
  op.cases.push_back({"wide", {f32({2, 40, 33, 16}), f32({2, 6})}, attrs("reflect", "bilinear", 0), near, {}});
  grad.cases.push_back({"one_row", {f32({2, 1, 9, 3}), f32({2, 6})}, attrs("reflect", "nearest", 0), near, {0}});
  return {op, grad};
}

}  // namespace plimsoll::engine
