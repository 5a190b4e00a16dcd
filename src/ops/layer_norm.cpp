// Layer normalisation over the last axis. The mean and 1/std of each row are saved for the gradients. With `rms` the
// rows are divided by their root mean square: the mean is taken as 0.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("layer_norm", in, attrs);
  if (!check.optional_flag("scale") || !check.optional_flag("center") || !check.optional_flag("rms") ||
      !check.real("epsilon") || !check.inputs(1 + attrs.flag("scale") + attrs.flag("center")) ||
      !check.mixed_floats() || !check.require(in[0].shape.rank() >= 1, "x needs an axis"))
    return check.failed();
  for (size_t i = 1; i < in.size(); ++i) check.channels(i, 0);
  const TensorType row{wide(in[0].dtype), Shape{rows_of(in[0].shape)}};
  return check.outputs({in[0], row, row});
}

// The inputs are dy, x, mean, rstd and, for the input gradient, gamma.
bool check_grad(InferCheck& check, InTypes in, size_t inputs) {
  if (!check.inputs(inputs) || !check.mixed_floats() || !check.same_shape(0, 1) || !check.same_shape(2, 3) ||
      !check.require(in[1].shape.rank() >= 1, "x needs an axis"))
    return false;
  const int64_t rows = rows_of(in[1].shape);
  return check.require(in[2].shape == Shape{rows}, fmt::format("mean and rstd must be [{}]", rows)) &&
         (inputs == 4 || check.channels(4, 1));
}

std::vector<ValueId> gradient(const GradientCall& g) {
  const bool scale = g.node.attrs.flag("scale"), center = g.node.attrs.flag("center");
  assert(g.output_grads[1] == kNone && g.output_grads[2] == kNone);
  const size_t gamma = 1, beta = scale ? 2 : 1;
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  const std::vector<ValueId> inputs = {g.grad(), g.in(0), g.out(1), g.out(2)};
  if ((scale && g.wants(gamma)) || (center && g.wants(beta))) {
    const auto both = g.b.add("layer_norm_param_grad", inputs);
    if (scale && g.wants(gamma)) grads[gamma] = both[0];
    if (center && g.wants(beta)) grads[beta] = both[1];
  }
  if (g.wants(0)) {
    auto with_gamma = inputs;
    Attrs attrs;
    if (scale) with_gamma.push_back(g.in(gamma));
    if (scale) attrs.set("scale", true);
    if (g.node.attrs.flag("rms")) attrs.set("rms", true);
    grads[0] = g.b.add1("layer_norm_input_grad", with_gamma, std::move(attrs));
  }
  return grads;
}

void reference_forward(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  const int64_t k = channels_of(shape);
  const bool scale = call.attrs.flag("scale"), center = call.attrs.flag("center"), rms = call.attrs.flag("rms");
  const double* gamma = scale ? in(call, 1) : nullptr;
  const double* beta = center ? in(call, scale ? 2 : 1) : nullptr;
  for_each(rows_of(shape), k * 4, [&](int64_t row) {
    const double* x = in(call, 0) + row * k;
    double *y = out(call) + row * k, mean = 0, var = 0;
    for (int64_t i = 0; i < k && !rms; ++i) mean += x[i];
    mean /= static_cast<double>(k);
    for (int64_t i = 0; i < k; ++i) var += (x[i] - mean) * (x[i] - mean);
    const double rstd = 1 / std::sqrt(var / static_cast<double>(k) + call.attrs.real("epsilon"));
    for (int64_t i = 0; i < k; ++i) y[i] = (x[i] - mean) * rstd * (gamma ? gamma[i] : 1.0) + (beta ? beta[i] : 0.0);
    out(call, 1)[row] = mean;
    out(call, 2)[row] = rstd;
  });
}

void reference_input_grad(const ReferenceCall& call) {
  const Shape& shape = call.inputs[1].type.shape;
  const int64_t k = channels_of(shape);
  const double* gamma = call.attrs.flag("scale") ? in(call, 4) : nullptr;
  const bool rms = call.attrs.flag("rms");
  for_each(rows_of(shape), k * 4, [&](int64_t row) {
    const double *dy = in(call, 0) + row * k, *x = in(call, 1) + row * k;
    const double mean = in(call, 2)[row], rstd = in(call, 3)[row];
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < k; ++i) {
      const double d = dy[i] * (gamma ? gamma[i] : 1.0);
      sum += rms ? 0.0 : d;
      dot += d * (x[i] - mean) * rstd;
    }
    for (int64_t i = 0; i < k; ++i) {
      const double d = dy[i] * (gamma ? gamma[i] : 1.0);
      out(call)[row * k + i] = rstd * (d - (sum + (x[i] - mean) * rstd * dot) / static_cast<double>(k));
    }
  });
}

void reference_param_grad(const ReferenceCall& call) {
  const Shape& shape = call.inputs[1].type.shape;
  const int64_t k = channels_of(shape), rows = rows_of(shape);
  const double *dy = in(call, 0), *x = in(call, 1), *mean = in(call, 2), *rstd = in(call, 3);
  sum_channels(out(call, 0), rows, k, [&](int64_t i, int64_t) { return dy[i] * (x[i] - mean[i / k]) * rstd[i / k]; });
  sum_channels(out(call, 1), rows, k, [&](int64_t i, int64_t) { return dy[i]; });
}

OpDef forward_op() {
  OpDef op;
  op.name = "layer_norm";
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = infer_forward;
  op.gradient = gradient;
  op.reference = reference_forward;
  op.error_units = 16;
  const Attrs full = {{"epsilon", 1e-3}, {"scale", true}, {"center", true}};
  const std::vector<std::string> three = {"normal", "normal", "normal"};
  op.cases = {
      {"full", {f32({4, 17}), f32({17}), f32({17})}, full, three, {0, 1, 2}},
      {"tokens", {f32({2, 5, 32}), f32({32}), f32({32})}, full, three, {0, 1, 2}},
      {"bare", {f32({3, 5})}, {{"epsilon", 1e-5}}, {"normal"}, {0}},
      {"scale_only", {f32({1, 5}), f32({5})}, {{"epsilon", 1e-3}, {"scale", true}}, {"normal", "normal"}, {0, 1}},
      {"center_only", {f32({2, 5}), f32({5})}, {{"epsilon", 1e-3}, {"center", true}}, {"normal", "normal"}, {0, 1}},
      {"rms", {f32({4, 17})}, {{"epsilon", 1e-6}, {"rms", true}}, {"normal"}, {0}},
      {"rms_scale",
       {f32({2, 5, 32}), f32({32})},
       {{"epsilon", 1e-3}, {"scale", true}, {"rms", true}},
       {"normal", "normal"},
       {0, 1}}};
  return op;
}

OpDef input_grad_op() {
  OpDef op;
  op.name = "layer_norm_input_grad";
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("layer_norm_input_grad", in, attrs);
    if (!check.optional_flag("scale") || !check.optional_flag("rms") || !check_grad(check, in, 4 + attrs.flag("scale")))
      return check.failed();
    return check.outputs({in[1]});
  };
  op.reference = reference_input_grad;
  op.error_units = 16;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "positive", "normal"};
  op.cases = {
      {"scale", {f32({4, 17}), f32({4, 17}), f32({4}), f32({4}), f32({17})}, {{"scale", true}}, fill, {}},
      {"bare", {f32({2, 3, 5}), f32({2, 3, 5}), f32({6}), f32({6})}, {}, {fill.begin(), fill.begin() + 4}, {}},
      {"rms", {f32({4, 17}), f32({4, 17}), f32({4}), f32({4}), f32({17})}, {{"scale", true}, {"rms", true}}, fill, {}}};
  return op;
}

OpDef param_grad_op() {
  OpDef op;
  op.name = "layer_norm_param_grad";
  op.recompute = Recompute::kCostly;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("layer_norm_param_grad", in, attrs);
    if (!check_grad(check, in, 4)) return check.failed();
    const TensorType vector{wide(in[1].dtype), Shape{in[1].shape.back()}};
    return check.outputs({vector, vector});
  };
  op.reference = reference_param_grad;
  op.error_units = 16;
  op.cases = {
      {"rows", {f32({9, 17}), f32({9, 17}), f32({9}), f32({9})}, {}, {"normal", "normal", "normal", "positive"}, {}},
      {"one", {f32({1, 3}), f32({1, 3}), f32({1}), f32({1})}, {}, {"normal", "normal", "normal", "positive"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> layer_norm_ops() {
  return {forward_op(), input_grad_op(), param_grad_op()};
}

}  // namespace plimsoll::engine
