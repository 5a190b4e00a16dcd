// matmul: a, b (2-D), bias? -> op(a) op(b) + bias, where op transposes if the attribute says so.
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

struct Sizes {
  int64_t m, n, k, other_k;
};

Sizes sizes_of(const Shape& a, const Shape& b, const Attrs& attrs) {
  const bool ta = attrs.flag("transpose_a"), tb = attrs.flag("transpose_b");
  return {a[ta ? 1 : 0], b[tb ? 0 : 1], a[ta ? 0 : 1], b[tb ? 1 : 0]};
}

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("matmul", in, attrs);
  if (!check.inputs(2, 3) || !check.all_floats() || !check.rank(0, 2) || !check.rank(1, 2) ||
      !check.optional_flag("transpose_a") || !check.optional_flag("transpose_b"))
    return check.failed();
  const Sizes s = sizes_of(in[0].shape, in[1].shape, attrs);
  check.require(s.k == s.other_k, fmt::format("inner sizes {} and {} must be equal", s.k, s.other_k));
  if (in.size() == 3)
    check.require(in[2].shape == Shape{s.n},
                  fmt::format("the bias must be [{}], one element per column of the result", s.n));
  return check.outputs({{in[0].dtype, Shape{s.m, s.n}}});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  const bool ta = g.node.attrs.flag("transpose_a"), tb = g.node.attrs.flag("transpose_b");
  const auto product = [&](ValueId a, bool transpose_a, ValueId b, bool transpose_b) {
    Attrs attrs;
    if (transpose_a) attrs.set("transpose_a", true);
    if (transpose_b) attrs.set("transpose_b", true);
    return g.b.add1("matmul", {a, b}, attrs);
  };
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  if (g.wants(0)) grads[0] = ta ? product(g.in(1), tb, g.grad(), true) : product(g.grad(), false, g.in(1), !tb);
  if (g.wants(1)) grads[1] = tb ? product(g.grad(), true, g.in(0), ta) : product(g.in(0), !ta, g.grad(), false);
  if (grads.size() == 3 && g.wants(2))
    grads[2] = g.b.add1("reduce_to", {g.grad()}, {{"shape", g.type(g.in(2)).shape.dims}});
  return grads;
}

void reference(const ReferenceCall& call) {
  const Shape &a = call.inputs[0].type.shape, &b = call.inputs[1].type.shape;
  const Sizes s = sizes_of(a, b, call.attrs);
  const bool ta = call.attrs.flag("transpose_a"), tb = call.attrs.flag("transpose_b");
  const double* x = in(call, 0);
  const int64_t row_stride = ta ? 1 : a[1], k_stride = ta ? a[1] : 1;
  const auto pack = [&](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* packed) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = k0; k < k1; ++k) packed[(k - k0) * kGemmRows + r] = x[(row + r) * row_stride + k * k_stride];
  };
  gemm(s.m, s.n, s.k, pack, {in(call, 1), tb ? 1 : b[1], tb ? b[1] : 1}, out(call), s.n);
  finish_product(call, s.m, s.n);
}

double flops(InTypes in, InTypes out, const Attrs& attrs) {
  return 2.0 * static_cast<double>(out[0].shape.elements()) *
         static_cast<double>(sizes_of(in[0].shape, in[1].shape, attrs).k);
}

}  // namespace

void finish_product(const ReferenceCall& call, int64_t rows, int64_t columns) {
  double* y = out(call);
  const double* bias = call.inputs.size() > 2 ? in(call, 2) : nullptr;
  const bool relu = call.attrs.has("activation") && call.attrs.text("activation") == "relu";
  if (!bias && !relu) return;
  map_channels(y, rows, columns, [&](int64_t i, int64_t c) {
    const double v = y[i] + (bias ? bias[c] : 0.0);
    return relu && v < 0 ? 0.0 : v;
  });
}

std::vector<OpDef> matmul_ops() {
  OpDef op;
  op.name = "matmul";
  op.recompute = Recompute::kCostly;
  op.infer = infer;
  op.gradient = gradient;
  op.reference = reference;
  op.flops = flops;
  op.error_units = 16;
  op.cases = {
      {"plain", {f32({4, 3}), f32({3, 5})}, {}, {"normal", "normal"}, {0, 1}},
      {"bias", {f32({5, 17}), f32({17, 3}), f32({3})}, {}, {"normal", "normal", "normal"}, {0, 1, 2}},
      {"transpose_a", {f32({3, 4}), f32({3, 5})}, {{"transpose_a", true}}, {"normal", "normal"}, {0, 1}},
      {"transpose_b", {f32({4, 3}), f32({5, 3})}, {{"transpose_b", true}}, {"normal", "normal"}, {0, 1}},
      {"both",
       {f32({3, 4}), f32({5, 3})},
       {{"transpose_a", true}, {"transpose_b", true}},
       {"normal", "normal"},
       {0, 1}},
      {"one", {f32({1, 1}), f32({1, 1})}, {}, {"normal", "normal"}, {0, 1}},
      {"batch1", {f32({1, 33}), f32({33, 10}), f32({10})}, {}, {"normal", "normal", "normal"}, {0, 1, 2}},
      {"deep", {f32({7, 300}), f32({300, 65}), f32({65})}, {}, {"normal", "normal", "normal"}, {2}},
      {"relu", {f32({7, 30}), f32({30, 9}), f32({9})}, {{"activation", "relu"}}, {"normal", "normal", "normal"}, {}},
  };
  return {op};
}

}  // namespace plimsoll::engine
