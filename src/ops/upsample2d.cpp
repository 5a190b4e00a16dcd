// upsample2d by integer factors, nearest or bilinear. Bilinear works like tf.image.resize: pixel centres at
// half-integers, edges clamped.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_attrs(InferCheck& check, const Attrs& attrs) {
  if (!check.list("size", 2, 1) || !check.has("interpolation", "text")) return false;
  const std::string& kind = attrs.text("interpolation");
  return check.require(kind == "nearest" || kind == "bilinear",
                       fmt::format("interpolation=\"{}\" must be \"nearest\" or \"bilinear\"", kind));
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("upsample2d", in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, 4) || !check_attrs(check, attrs)) return check.failed();
  const Shape& x = in[0].shape;
  const auto& size = attrs.list("size");
  if (!check.require(x[1] <= (int64_t{1} << 31) && x[2] <= (int64_t{1} << 31), "the image is too large"))
    return check.failed();
  return check.outputs({{in[0].dtype, Shape{x[0], x[1] * size[0], x[2] * size[1], x[3]}}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("upsample2d_grad", in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, 4) || !check_attrs(check, attrs)) return check.failed();
  const Shape& dy = in[0].shape;
  const auto& size = attrs.list("size");
  if (!check.require(dy[1] % size[0] == 0 && dy[2] % size[1] == 0,
                     fmt::format("{}x{} is not a multiple of size {},{}", dy[1], dy[2], size[0], size[1])))
    return check.failed();
  return check.outputs({{in[0].dtype, Shape{dy[0], dy[1] / size[0], dy[2] / size[1], dy[3]}}});
}

// An output row or column reads two of the input. `weight` is that of the second.
struct Taps {
  int64_t low, high;
  double weight;
};

Taps taps_of(int64_t at, int64_t factor, int64_t size, bool bilinear) {
  if (!bilinear) return {at / factor, at / factor, 0.0};
  const double position = (static_cast<double>(at) + 0.5) / static_cast<double>(factor) - 0.5;
  const auto floor = static_cast<int64_t>(std::floor(position));
  return {std::max<int64_t>(floor, 0), std::min(floor + 1, size - 1), position - static_cast<double>(floor)};
}

// Calls body(output pixel, input pixel, weight) for each of the up to four input pixels that an output pixel of sample
// n reads.
template <typename Body>
void for_taps(const Shape& small, const Attrs& attrs, int64_t n, Body body) {
  const auto& size = attrs.list("size");
  const bool bilinear = attrs.text("interpolation") == "bilinear";
  for (int64_t h = 0; h < small[1] * size[0]; ++h)
    for (int64_t w = 0; w < small[2] * size[1]; ++w) {
      const Taps row = taps_of(h, size[0], small[1], bilinear), column = taps_of(w, size[1], small[2], bilinear);
      const int64_t to = (n * small[1] * size[0] + h) * small[2] * size[1] + w;
      for (int corner = 0; corner < (bilinear ? 4 : 1); ++corner) {
        const int64_t i = corner & 2 ? row.high : row.low, j = corner & 1 ? column.high : column.low;
        const double weight =
            (corner & 2 ? row.weight : 1 - row.weight) * (corner & 1 ? column.weight : 1 - column.weight);
        body(to, (n * small[1] + i) * small[2] + j, weight);
      }
    }
}

void reference_forward(const ReferenceCall& call) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  std::fill_n(out(call), y.elements(), 0.0);
  for_each(x[0], y.elements() / y[0] * 4, [&](int64_t n) {
    for_taps(x, call.attrs, n, [&](int64_t to, int64_t from, double weight) {
      for (int64_t c = 0; c < x[3]; ++c) out(call)[to * x[3] + c] += weight * in(call, 0)[from * x[3] + c];
    });
  });
}

void reference_grad(const ReferenceCall& call) {
  const Shape &dy = call.inputs[0].type.shape, &dx = call.outputs[0].type.shape;
  std::fill_n(out(call), dx.elements(), 0.0);
  for_each(dx[0], dy.elements() / dy[0] * 4, [&](int64_t n) {
    for_taps(dx, call.attrs, n, [&](int64_t from, int64_t to, double weight) {
      for (int64_t c = 0; c < dx[3]; ++c) out(call)[to * dx[3] + c] += weight * in(call, 0)[from * dx[3] + c];
    });
  });
}

Attrs upsampling(Ints size, const std::string& interpolation) {
  return {{"size", std::move(size)}, {"interpolation", interpolation}};
}

}  // namespace

std::vector<OpDef> upsample2d_ops() {
  OpDef op;
  op.name = "upsample2d";
  op.recompute = Recompute::kCheap;
  op.infer = infer_forward;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("upsample2d_grad", {g.grad()}, g.node.attrs)};
  };
  op.reference = reference_forward;
  op.cases = {{"nearest", {f32({2, 3, 4, 5})}, upsampling({2, 2}, "nearest"), {"normal"}, {0}},
              {"nearest_uneven", {f32({1, 2, 3, 1})}, upsampling({3, 1}, "nearest"), {"normal"}, {0}},
              {"bilinear", {f32({2, 3, 4, 5})}, upsampling({2, 2}, "bilinear"), {"normal"}, {0}},
              {"bilinear_odd", {f32({1, 4, 2, 17})}, upsampling({3, 2}, "bilinear"), {"normal"}, {0}}};

  OpDef grad;
  grad.name = "upsample2d_grad";
  grad.recompute = Recompute::kCostly;
  grad.infer = infer_grad;
  grad.reference = reference_grad;
  grad.error_units = 8;
  grad.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  grad.cases = {{"nearest", {f32({2, 6, 8, 5})}, upsampling({2, 2}, "nearest"), {"normal"}, {}},
                {"nearest_uneven", {f32({1, 6, 3, 1})}, upsampling({3, 1}, "nearest"), {"normal"}, {}},
                {"bilinear", {f32({1, 6, 8, 3})}, upsampling({2, 2}, "bilinear"), {"normal"}, {}},
                {"bilinear_odd", {f32({1, 9, 4, 17})}, upsampling({3, 2}, "bilinear"), {"normal"}, {}}};
  return {op, grad};
}

}  // namespace plimsoll::engine
