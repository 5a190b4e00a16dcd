// Gradient clipping: clip_value clips by value; squared_norm and clip_factor clip by norm.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_limit(InferCheck& check, const Attrs& attrs) {
  return check.real("limit") &&
         check.require(attrs.real("limit") > 0, fmt::format("limit={} must be above 0", attrs.real("limit")));
}

// An op with one input, an output of the same type, and a limit.
OpDef limited_op(const std::string& name, bool scalar) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = [name, scalar](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(1) || !check.all_floats() || (scalar && !check.scalar(0)) || !check_limit(check, attrs))
      return check.failed();
    return check.outputs({in[0]});
  };
  return op;
}

OpDef clip_value_op() {
  OpDef op = limited_op("clip_value", false);
  op.reference = [](const ReferenceCall& call) {
    const double limit = call.attrs.real("limit");
    map_elements(out(call), call.outputs[0].elements(), [=, g = in(call, 0)](int64_t i) {
      return g[i] > limit ? limit : g[i] < -limit ? -limit : g[i];  // NaN stays NaN
    });
  };
  op.error_units = 1;
  op.cases = {{"some", {f32({3, 17})}, {{"limit", 0.5}}, {"normal"}, {}},
              {"none", {f32({5})}, {{"limit", 100.0}}, {"normal"}, {}}};
  return op;
}

OpDef squared_norm_op() {
  OpDef op;
  op.name = "squared_norm";
  op.kind = OpKind::kReduction;
  op.recompute = Recompute::kCostly;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("squared_norm", in, attrs);
    if (!check.inputs(1) || !check.all_floats()) return check.failed();
    return check.outputs({{in[0].dtype, Shape{}}});
  };
  op.reference = [](const ReferenceCall& call) {
    double sum = 0;
    for (int64_t i = 0; i < call.inputs[0].elements(); ++i) sum += in(call, 0)[i] * in(call, 0)[i];
    *out(call) = sum;
  };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 2.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 16;
  op.cases = {{"kernel", {f32({3, 3, 5, 17})}, {}, {"normal"}, {}}, {"scalar", {f32({})}, {}, {"normal"}, {}}};
  return op;
}

OpDef clip_factor_op() {
  OpDef op = limited_op("clip_factor", true);
  op.reference = [](const ReferenceCall& call) {
    const double limit = call.attrs.real("limit"), norm = std::sqrt(*in(call, 0));
    *out(call) = norm <= limit ? 1.0 : limit / norm;  // NaN stays NaN
  };
  op.cases = {{"clips", {f32({})}, {{"limit", 1.5}}, {"value:7"}, {}},
              {"passes", {f32({})}, {{"limit", 1.5}}, {"value:2"}, {}},
              {"zero", {f32({})}, {{"limit", 1.5}}, {"zero"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> clip_ops() {
  return {clip_value_op(), squared_norm_op(), clip_factor_op()};
}

}  // namespace plimsoll::engine
