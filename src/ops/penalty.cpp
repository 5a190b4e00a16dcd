// l1_l2_penalty of a weight: l1 * sum |w| + l2 * sum w^2.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_attrs(InferCheck& check) {
  return check.optional_real("l1") && check.optional_real("l2");
}

double sign(double x) {
  return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0;
}

}  // namespace

std::vector<OpDef> penalty_ops() {
  OpDef op;
  op.name = "l1_l2_penalty";
  op.kind = OpKind::kReduction;
  op.recompute = Recompute::kCostly;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("l1_l2_penalty", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check_attrs(check)) return check.failed();
    return check.outputs({{in[0].dtype, Shape{}}});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("l1_l2_grad", {g.in(0), g.grad()}, g.node.attrs)};
  };
  op.reference = [](const ReferenceCall& call) {
    double absolute = 0, squares = 0;
    for (int64_t i = 0; i < call.inputs[0].elements(); ++i) {
      absolute += std::fabs(in(call, 0)[i]);
      squares += in(call, 0)[i] * in(call, 0)[i];
    }
    *out(call) = call.attrs.real_or("l1", 0) * absolute + call.attrs.real_or("l2", 0) * squares;
  };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 4.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 16;
  const Attrs l1 = {{"l1", 0.01}, {"l2", 0.0}}, l2 = {{"l1", 0.0}, {"l2", 0.01}}, both = {{"l1", 0.02}, {"l2", 0.01}};
  op.cases = {{"l2", {f32({3, 3, 5, 17})}, l2, {"distinct"}, {0}},
              {"l1", {f32({33})}, l1, {"distinct"}, {0}},
              {"both", {f32({1, 5})}, both, {"distinct"}, {0}}};

  OpDef grad;
  grad.name = "l1_l2_grad";
  grad.kind = OpKind::kElementwise;
  grad.recompute = Recompute::kCheap;
  grad.in_place = {{0, 0}};
  grad.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("l1_l2_grad", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.scalar(1) || !check_attrs(check)) return check.failed();
    return check.outputs({in[0]});
  };
  grad.reference = [](const ReferenceCall& call) {
    const double a = call.attrs.real_or("l1", 0), b = call.attrs.real_or("l2", 0), d = *in(call, 1);
    map_elements(out(call), call.outputs[0].elements(),
                 [=, w = in(call, 0)](int64_t i) { return d * (a * sign(w[i]) + 2 * b * w[i]); });
  };
  grad.cases = {{"both", {f32({3, 17}), f32({})}, both, {"distinct", "normal"}, {}},
                {"l1", {f32({5}), f32({})}, l1, {"distinct", "normal"}, {}}};
  return {op, grad};
}

}  // namespace plimsoll::engine
