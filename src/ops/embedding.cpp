// Embedding lookup, and the gradient of the embedding table: each row sums the gradients of its ids, in the order of
// the ids. An id out of range reads NaN, like a label out of range, and gets no gradient.
#include <limits>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("embedding", in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.rank(0, 2) || !check.type(1, DType::kInt32))
    return check.failed();
  Shape y = in[1].shape;
  y.dims.push_back(in[0].shape[1]);
  return check.outputs({{in[0].dtype, std::move(y)}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("embedding_grad", in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.type(1, DType::kInt32) || !check.integer("rows", 1) ||
      !check.require(in[0].shape.rank() == in[1].shape.rank() + 1, "dy must have one dimension more than the ids"))
    return check.failed();
  Shape ids = in[0].shape;
  ids.dims.pop_back();
  check.require(ids == in[1].shape, "dy must have one row for each id");
  return check.outputs({{in[0].dtype, Shape{attrs.integer("rows"), in[0].shape.back()}}});
}

void reference_forward(const ReferenceCall& call) {
  const int64_t rows = call.inputs[0].type.shape[0], width = call.inputs[0].type.shape[1];
  const auto* ids = call.inputs[1].as<int32_t>();
  for_each(call.inputs[1].elements(), width, [&](int64_t i) {
    double* y = out(call) + i * width;
    if (ids[i] < 0 || ids[i] >= rows) return std::fill(y, y + width, std::numeric_limits<double>::quiet_NaN());
    const double* from = in(call, 0) + ids[i] * width;
    std::copy(from, from + width, y);
  });
}

void reference_grad(const ReferenceCall& call) {
  const Shape& table = call.outputs[0].type.shape;
  const auto* ids = call.inputs[1].as<int32_t>();
  double* dtable = out(call);
  std::fill(dtable, dtable + table.elements(), 0.0);
  for (int64_t i = 0; i < call.inputs[1].elements(); ++i) {
    if (ids[i] < 0 || ids[i] >= table[0]) continue;
    for (int64_t c = 0; c < table[1]; ++c) dtable[ids[i] * table[1] + c] += in(call, 0)[i * table[1] + c];
  }
}

OpDef forward_op() {
  OpDef op;
  op.name = "embedding";
  op.recompute = Recompute::kCheap;
  op.infer = infer_forward;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    return {g.b.add1("embedding_grad", {g.grad(), g.in(1)}, {{"rows", g.type(g.in(0)).shape[0]}}), kNone};
  };
  op.reference = reference_forward;
  op.error_units = 0;
  op.cases = {{"tokens", {f32({11, 6}), i32({3, 5})}, {}, {"normal", "labels:11"}, {0}},
              {"one", {f32({1, 1}), i32({1})}, {}, {"normal", "labels:1"}, {0}},
              {"wide", {f32({40, 130}), i32({70})}, {}, {"normal", "labels:40"}, {}}};
  return op;
}

OpDef grad_op() {
  OpDef op;
  op.name = "embedding_grad";
  op.recompute = Recompute::kNever;
  op.infer = infer_grad;
  op.reference = reference_grad;
  op.error_units = 16;
  op.cases = {{"tokens", {f32({3, 5, 6}), i32({3, 5})}, {{"rows", int64_t{11}}}, {"normal", "labels:11"}, {}},
              {"one_row", {f32({200, 3}), i32({200})}, {{"rows", int64_t{2}}}, {"uniform", "labels:1"}, {}},
              {"wide", {f32({70, 130}), i32({70})}, {{"rows", int64_t{40}}}, {"normal", "labels:40"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> embedding_ops() {
  return {forward_op(), grad_op()};
}

}  // namespace plimsoll::engine
