// batch_matmul: a [B,m,k], b [B,k,n] -> [B,m,n], one matrix product per index of the first dimension.
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("batch_matmul", in, attrs);
  if (!check.inputs(2) || !check.all_floats() || !check.rank(0, 3) || !check.rank(1, 3) ||
      !check.optional_flag("transpose_a") || !check.optional_flag("transpose_b"))
    return check.failed();
  const bool ta = attrs.flag("transpose_a"), tb = attrs.flag("transpose_b");
  const Shape &a = in[0].shape, &b = in[1].shape;
  const int64_t k = a[ta ? 1 : 2], other = b[tb ? 2 : 1];
  check.require(a[0] == b[0], fmt::format("{} and {} matrices must be as many", a[0], b[0]));
  check.require(k == other, fmt::format("inner sizes {} and {} must be equal", k, other));
  return check.outputs({{in[0].dtype, Shape{a[0], a[ta ? 2 : 1], b[tb ? 1 : 2]}}});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  const bool ta = g.node.attrs.flag("transpose_a"), tb = g.node.attrs.flag("transpose_b");
  const auto product = [&](ValueId a, bool transpose_a, ValueId b, bool transpose_b) {
    Attrs attrs;
    if (transpose_a) attrs.set("transpose_a", true);
    if (transpose_b) attrs.set("transpose_b", true);
    return g.b.add1("batch_matmul", {a, b}, attrs);
  };
  std::vector<ValueId> grads(2, kNone);
  if (g.wants(0)) grads[0] = ta ? product(g.in(1), tb, g.grad(), true) : product(g.grad(), false, g.in(1), !tb);
  if (g.wants(1)) grads[1] = tb ? product(g.grad(), true, g.in(0), ta) : product(g.in(0), !ta, g.grad(), false);
  return grads;
}

void reference(const ReferenceCall& call) {
  const Shape &a = call.inputs[0].type.shape, &b = call.inputs[1].type.shape, &c = call.outputs[0].type.shape;
  const bool ta = call.attrs.flag("transpose_a"), tb = call.attrs.flag("transpose_b");
  const int64_t row_stride = ta ? 1 : a[2], k_stride = ta ? a[2] : 1;
  for (int64_t i = 0; i < a[0]; ++i) {
    const double* x = in(call, 0) + i * a[1] * a[2];
    const auto pack = [&](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* packed) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = k0; k < k1; ++k) packed[(k - k0) * kGemmRows + r] = x[(row + r) * row_stride + k * k_stride];
    };
    gemm(c[1], c[2], ta ? a[1] : a[2], pack, {in(call, 1) + i * b[1] * b[2], tb ? 1 : b[2], tb ? b[2] : 1},
         out(call) + i * c[1] * c[2], c[2]);
  }
}

}  // namespace

std::vector<OpDef> batch_matmul_ops() {
  OpDef op;
  op.name = "batch_matmul";
  op.recompute = Recompute::kCostly;
  op.infer = infer;
  op.gradient = gradient;
  op.reference = reference;
  op.flops = [](InTypes in, InTypes out, const Attrs& attrs) {
    return 2.0 * static_cast<double>(out[0].shape.elements()) *
           static_cast<double>(in[0].shape[attrs.flag("transpose_a") ? 1 : 2]);
  };
  op.error_units = 16;
  const std::vector<std::string> normal = {"normal", "normal"};
  op.cases = {
      {"plain", {f32({3, 4, 3}), f32({3, 3, 5})}, {}, normal, {0, 1}},
      {"transpose_a", {f32({2, 3, 4}), f32({2, 3, 5})}, {{"transpose_a", true}}, normal, {0, 1}},
      {"transpose_b", {f32({2, 4, 3}), f32({2, 5, 3})}, {{"transpose_b", true}}, normal, {0, 1}},
      {"both", {f32({2, 3, 4}), f32({2, 5, 3})}, {{"transpose_a", true}, {"transpose_b", true}}, normal, {0, 1}},
      {"one", {f32({1, 1, 1}), f32({1, 1, 1})}, {}, normal, {0, 1}},
      {"rows", {f32({5, 1, 7}), f32({5, 7, 9})}, {}, normal, {0, 1}},
      {"many", {f32({40, 8, 16}), f32({40, 8, 16})}, {{"transpose_b", true}}, normal, {}},
      {"deep", {f32({2, 33, 130}), f32({2, 130, 65})}, {}, normal, {}}};
  return {op};
}

}  // namespace plimsoll::engine
