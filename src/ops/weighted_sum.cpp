// weighted_sum: scale * sum over rows of weight * v, which is linear in v. With N samples, a sample's weight applies to
// rows/N rows.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_weights(InferCheck& check, InTypes in, size_t weights, int64_t rows) {
  const Shape& w = in[weights].shape;
  return check.rank(weights, 1) &&
         check.require(rows % w[0] == 0,
                       fmt::format("{} rows cannot be divided among the weights of {} samples", rows, w[0]));
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("weighted_sum", in, attrs);
  if (!check.optional_flag("weighted") || !check.inputs(attrs.flag("weighted") ? 3 : 2) || !check.all_floats() ||
      !check.rank(0, 1) || !check.scalar(1))
    return check.failed();
  if (in.size() == 3) check_weights(check, in, 2, in[0].shape[0]);
  return check.outputs({{in[0].dtype, Shape{}}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("weighted_sum_grad", in, attrs);
  if (!check.optional_flag("weighted") || !check.inputs(attrs.flag("weighted") ? 3 : 2) || !check.all_floats() ||
      !check.scalar(0) || !check.scalar(1) || !check.integer("rows", 1))
    return check.failed();
  if (in.size() == 3) check_weights(check, in, 2, attrs.integer("rows"));
  return check.outputs({{in[0].dtype, Shape{attrs.integer("rows")}}});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  if (!g.wants(0)) return grads;
  std::vector<ValueId> inputs = {g.grad(), g.in(1)};
  Attrs attrs = {{"rows", g.type(g.in(0)).shape[0]}};
  if (g.node.attrs.flag("weighted")) {
    inputs.push_back(g.in(2));
    attrs.set("weighted", true);
  }
  grads[0] = g.b.add1("weighted_sum_grad", inputs, attrs);
  return grads;
}

// The weight of a row; 1 if there are no weights.
struct RowWeight {
  const double* weights;
  int64_t rows_per_sample;

  RowWeight(const ReferenceCall& call, int64_t rows)
      : weights(call.inputs.size() == 3 ? in(call, 2) : nullptr),
        rows_per_sample(weights ? rows / call.inputs[2].elements() : 1) {}
  double operator()(int64_t row) const { return weights ? weights[row / rows_per_sample] : 1.0; }
};

void reference_forward(const ReferenceCall& call) {
  const int64_t rows = call.inputs[0].elements();
  const RowWeight weight(call, rows);
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += weight(row) * in(call, 0)[row];
  *out(call) = sum * *in(call, 1);
}

void reference_grad(const ReferenceCall& call) {
  const int64_t rows = call.outputs[0].elements();
  const RowWeight weight(call, rows);
  const double d = *in(call, 0) * *in(call, 1);
  map_elements(out(call), rows, [&](int64_t row) { return d * weight(row); });
}

}  // namespace

std::vector<OpDef> weighted_sum_ops() {
  OpDef op;
  op.name = "weighted_sum";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = gradient;
  op.reference = reference_forward;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 2.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 16;
  const Attrs weighted = {{"weighted", true}};
  op.cases = {{"plain", {f32({17}), f32({})}, {}, {"positive", "normal"}, {0}},
              {"weights", {f32({5}), f32({}), f32({5})}, weighted, {"normal", "positive", "uniform"}, {0}},
              {"shared", {f32({12}), f32({}), f32({3})}, weighted, {"normal", "positive", "uniform"}, {0}},
              {"one", {f32({1}), f32({})}, {}, {"normal", "normal"}, {0}}};

  OpDef grad;
  grad.name = "weighted_sum_grad";
  grad.recompute = Recompute::kCheap;
  grad.infer = infer_grad;
  grad.reference = reference_grad;
  grad.cases = {{"plain", {f32({}), f32({})}, {{"rows", int64_t{17}}}, {"normal", "normal"}, {}},
                {"shared",
                 {f32({}), f32({}), f32({3})},
                 {{"rows", int64_t{12}}, {"weighted", true}},
                 {"normal", "normal", "uniform"},
                 {}}};
  return {op, grad};
}

}  // namespace plimsoll::engine
