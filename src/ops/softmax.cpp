// softmax over the last axis, and its gradient from the output.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

void reference_forward(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  const int64_t k = channels_of(shape);
  for_each(rows_of(shape), k * 16, [&](int64_t row) {
    const double* x = in(call, 0) + row * k;
    double* y = out(call) + row * k;
    const double most = *std::max_element(x, x + k);
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += y[i] = std::exp(x[i] - most);
    for (int64_t i = 0; i < k; ++i) y[i] /= sum;
  });
}

void reference_grad(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  const int64_t k = channels_of(shape);
  for_each(rows_of(shape), k, [&](int64_t row) {
    const double *dy = in(call, 0) + row * k, *y = in(call, 1) + row * k;
    double dot = 0;
    for (int64_t i = 0; i < k; ++i) dot += dy[i] * y[i];
    for (int64_t i = 0; i < k; ++i) out(call)[row * k + i] = (dy[i] - dot) * y[i];
  });
}

}  // namespace

std::vector<OpDef> softmax_ops() {
  OpDef op;
  op.name = "softmax";
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("softmax", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check.require(in[0].shape.rank() >= 1, "needs an axis"))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("softmax_grad", {g.grad(), g.out(0)})};
  };
  op.reference = reference_forward;
  op.error_units = 8;
  op.cases = {{"rows", {f32({4, 10})}, {}, {"normal"}, {0}},
              {"one_class", {f32({3, 1})}, {}, {"normal"}, {0}},
              {"pixels", {f32({1, 3, 3, 17})}, {}, {"normal"}, {0}},
              {"flat", {f32({2, 1000})}, {}, {"value:88.5"}, {}}};

  OpDef grad;
  grad.name = "softmax_grad";
  grad.recompute = Recompute::kCheap;
  grad.in_place = {{0, 0}, {1, 0}};
  grad.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("softmax_grad", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1) ||
        !check.require(in[0].shape.rank() >= 1, "needs an axis"))
      return check.failed();
    return check.outputs({in[0]});
  };
  grad.reference = reference_grad;
  grad.error_units = 8;
  grad.cases = {{"rows", {f32({4, 10}), f32({4, 10})}, {}, {"normal", "probabilities"}, {}},
                {"pixels", {f32({1, 3, 3, 17}), f32({1, 3, 3, 17})}, {}, {"normal", "probabilities"}, {}}};
  return {op, grad};
}

}  // namespace plimsoll::engine
