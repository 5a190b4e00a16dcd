// sgd and adam: the update of one weight, with Keras's formulas (keras/src/optimizers/{sgd,adam,base_optimizer}.py). If
// Keras casts a Python number to the weight's dtype, TensorFlow rounds it to float32 first. We do the same, so that
// float64 training matches too.
#include <cmath>

#include "base/rounding.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_sgd(InTypes in, const Attrs& attrs) {
  InferCheck check("sgd", in, attrs);
  if (!check.optional_real("momentum") || !check.optional_flag("nesterov") || !check.optional_real("weight_decay"))
    return check.failed();
  const bool momentum = attrs.real_or("momentum", 0) != 0;
  if (!check.inputs(momentum ? 4 : 3) || !check.all_floats() || !check.same_shape(0, 1) || !check.scalar(2))
    return check.failed();
  if (!momentum) return check.outputs({in[0]});
  check.same_shape(0, 3);
  return check.outputs({in[0], in[0]});
}

void reference_sgd(const ReferenceCall& call) {
  const double *w = in(call, 0), *g = in(call, 1), rate = *in(call, 2);
  const double momentum = through_float32(call.attrs.real_or("momentum", 0));
  const double decay = through_float32(call.attrs.real_or("weight_decay", 0));
  const double* state = momentum != 0 ? in(call, 3) : nullptr;
  double* new_state = momentum != 0 ? out(call, 1) : nullptr;
  const bool nesterov = call.attrs.flag("nesterov");
  map_elements(out(call), call.outputs[0].elements(), [=](int64_t i) {
    const double decayed = w[i] - w[i] * decay * rate, step = g[i] * rate;
    if (!state) return decayed - step;
    const double m = state[i] * momentum - step;
    new_state[i] = m;
    return decayed + (nesterov ? m * momentum - step : m);
  });
}

Result<Types> infer_adam(InTypes in, const Attrs& attrs) {
  InferCheck check("adam", in, attrs);
  if (!check.inputs(6) || !check.floats({0, 1, 2, 3, 4}) || !check.same_shape(0, 1) || !check.same_shape(0, 2) ||
      !check.same_shape(0, 3) || !check.scalar(4) || !check.scalar(5) || !check.type(5, DType::kInt64) ||
      !check.real("beta_1") || !check.real("beta_2") || !check.real("epsilon") || !check.optional_real("weight_decay"))
    return check.failed();
  return check.outputs({in[0], in[0], in[0]});
}

void reference_adam(const ReferenceCall& call) {
  const double *w = in(call, 0), *g = in(call, 1), *m = in(call, 2), *v = in(call, 3), rate = *in(call, 4);
  const auto step = static_cast<double>(*call.inputs[5].as<int64_t>());
  const double beta_1 = call.attrs.real("beta_1"), beta_2 = call.attrs.real("beta_2");
  const double epsilon = call.attrs.real("epsilon"), decay = through_float32(call.attrs.real_or("weight_decay", 0));
  const double power_1 = std::pow(through_float32(beta_1), step), power_2 = std::pow(through_float32(beta_2), step);
  const double alpha = rate * std::sqrt(1 - power_2) / (1 - power_1);
  double *new_m = out(call, 1), *new_v = out(call, 2);
  map_elements(out(call), call.outputs[0].elements(), [=](int64_t i) {
    new_m[i] = m[i] + (g[i] - m[i]) * (1 - beta_1);
    new_v[i] = v[i] + (g[i] * g[i] - v[i]) * (1 - beta_2);
    return w[i] - w[i] * decay * rate - new_m[i] * alpha / (std::sqrt(new_v[i]) + epsilon);
  });
}

OpDef sgd_op() {
  OpDef op;
  op.name = "sgd";
  op.kind = OpKind::kElementwise;
  op.in_place = {{0, 0}, {3, 1}};
  op.infer = infer_sgd;
  op.reference = reference_sgd;
  const std::vector<std::string> three = {"normal", "normal", "value:0.01"};
  const std::vector<std::string> four = {"normal", "normal", "value:0.01", "normal"};
  const Types plain = {f32({3, 5}), f32({3, 5}), f32({})}, state = {f32({17}), f32({17}), f32({}), f32({17})};
  op.cases = {{"plain", plain, {}, three, {}},
              {"decay", plain, {{"weight_decay", 0.004}}, three, {}},
              {"momentum", state, {{"momentum", 0.9}}, four, {}},
              {"nesterov", state, {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.01}}, four, {}}};
  return op;
}

OpDef adam_op() {
  OpDef op;
  op.name = "adam";
  op.kind = OpKind::kElementwise;
  op.in_place = {{0, 0}, {2, 1}, {3, 2}};
  op.infer = infer_adam;
  op.reference = reference_adam;
  op.error_units = 8;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "uniform", "value:0.001", "step:3,0"};
  const std::vector<std::string> first = {"normal", "normal", "zero", "zero", "value:0.001", "step:1,0"};
  const Attrs attrs = {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}};
  const Attrs decay = {{"beta_1", 0.8}, {"beta_2", 0.99}, {"epsilon", 1e-3}, {"weight_decay", 0.004}};
  const auto inputs = [](const TensorType& w) { return Types{w, w, w, w, f32({}), i64({})}; };
  op.cases = {{"first", inputs(f32({3, 3, 3, 5})), attrs, first, {}},
              {"later", inputs(f32({17})), attrs, fill, {}},
              {"decay", inputs(f32({1, 33})), decay, fill, {}}};
  return op;
}

// Inputs: count. Returns in which period of `period` counts it lies, from 1, and 0 if it is the period's last, else 1.
OpDef count_periods_op() {
  OpDef op;
  op.name = "count_periods";
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("count_periods", in, attrs);
    if (!check.inputs(1) || !check.scalar(0) || !check.type(0, DType::kInt64) || !check.integer("period", 1) ||
        !check.has("dtype", "text"))
      return check.failed();
    const auto dtype = dtype_from_name(attrs.text("dtype"));
    if (!check.require(dtype && is_floating(*dtype), "needs a floating-point dtype")) return check.failed();
    return check.outputs({in[0], {*dtype, Shape{}}});
  };
  op.reference = [](const ReferenceCall& call) {
    const int64_t count = *call.inputs[0].as<int64_t>(), period = call.attrs.integer("period");
    *call.outputs[0].as<int64_t>() = count / period + (count % period == 0 ? 0 : 1);
    *out(call, 1) = count % period == 0 ? 0 : 1;
  };
  op.error_units = 0;
  const Attrs three = {{"period", int64_t{3}}, {"dtype", std::string("f32")}};
  op.cases = {{"inside", {i64({})}, three, {"step:7,0"}, {}}, {"last", {i64({})}, three, {"step:9,0"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
  return {sgd_op(), adam_op(), count_periods_op()};
}

}  // namespace plimsoll::engine
