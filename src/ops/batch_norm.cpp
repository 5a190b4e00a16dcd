// Batch normalisation over channels, as separate ops for statistics and application, so that the application can be
// recomputed from saved statistics. batch_norm_apply's rule (with `batch_stats`) contains the whole gradient through
// the statistics: dx = gamma * rstd * (dy - dbeta / rows - xhat * dgamma / rows). batch_norm_stats therefore passes on
// no gradient.
#include <cmath>

#include "ops/families.h"
#include "ops/split.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_x(InferCheck& check, InTypes in, size_t x) {
  return check.require(in[x].shape.rank() >= 2, "needs a batch and a channel dimension");
}

bool check_vectors(InferCheck& check, InTypes in, size_t first, size_t of) {
  for (size_t i = first; i < in.size(); ++i)
    if (!check.channels(i, of)) return false;
  return true;
}

double rstd(const double* var, int64_t c, double epsilon) {
  return 1 / std::sqrt(var[c] + epsilon);
}

OpDef make(const std::string& name, OpKind kind, Recompute recompute) {
  OpDef op;
  op.name = name;
  op.kind = kind;
  op.recompute = recompute;
  return op;
}

OpDef stats_op() {
  // Never recomputed: the moving averages are updated from the statistics once, and recomputing them needs the whole
  // batch.
  OpDef op = make("batch_norm_stats", OpKind::kReduction, Recompute::kNever);
  op.couples_samples = true;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("batch_norm_stats", in, attrs);
    if (!check.inputs(1) || !check.mixed_floats() || !check_x(check, in, 0)) return check.failed();
    const TensorType vector{wide(in[0].dtype), Shape{in[0].shape.back()}};
    return check.outputs({vector, vector});
  };
  op.gradient = [](const GradientCall&) -> std::vector<ValueId> { return {kNone}; };
  op.reference = [](const ReferenceCall& call) {
    const Shape& shape = call.inputs[0].type.shape;
    const int64_t rows = rows_of(shape), channels = channels_of(shape);
    const double* x = in(call, 0);
    double *mean = out(call, 0), *var = out(call, 1);
    sum_channels(mean, rows, channels, [&](int64_t i, int64_t) { return x[i]; });
    for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<double>(rows);
    sum_channels(var, rows, channels, [&](int64_t i, int64_t c) { return (x[i] - mean[c]) * (x[i] - mean[c]); });
    for (int64_t c = 0; c < channels; ++c) var[c] /= static_cast<double>(rows);
  };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 4.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 16;
  op.cases = {{"image", {f32({4, 3, 3, 5})}, {}, {"normal"}, {}},
              {"rows", {f32({17, 3})}, {}, {"normal"}, {}},
              {"far_from_zero", {f32({8, 4, 4, 32})}, {}, {"positive"}, {}},
              {"one_row", {f32({1, 17})}, {}, {"normal"}, {}}};
  return op;
}

std::vector<ValueId> apply_gradient(const GradientCall& g) {
  const Attrs& attrs = g.node.attrs;
  const bool scale = attrs.flag("scale"), center = attrs.flag("center"), batch = attrs.flag("batch_stats");
  const Attrs epsilon = {{"epsilon", attrs.real("epsilon")}};
  const size_t gamma = 3, beta = scale ? 4 : 3;
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  const bool wants_gamma = scale && g.wants(gamma), wants_beta = center && g.wants(beta);
  std::vector<ValueId> sums;
  if (wants_gamma || wants_beta || (batch && g.wants(0)))
    sums = g.b.add("batch_norm_grad_stats", {g.grad(), g.in(0), g.in(1), g.in(2)}, epsilon);
  if (wants_gamma) grads[gamma] = sums[0];
  if (wants_beta) grads[beta] = sums[1];
  if (!g.wants(0)) return grads;
  std::vector<ValueId> inputs = {g.grad(), g.in(2)};
  if (batch) inputs = {g.grad(), g.in(0), g.in(1), g.in(2), sums[0], sums[1]};
  if (scale) inputs.push_back(g.in(gamma));
  Attrs own = epsilon;
  if (scale) own.set("scale", true);
  grads[0] = g.b.add1(batch ? "batch_norm_input_grad" : "batch_norm_frozen_grad", inputs, own);
  return grads;
}

OpDef apply_op() {
  OpDef op = make("batch_norm_apply", OpKind::kElementwise, Recompute::kCheap);
  op.in_place = {{0, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("batch_norm_apply", in, attrs);
    if (!check.optional_flag("scale") || !check.optional_flag("center") || !check.optional_flag("batch_stats") ||
        !check.real("epsilon") || !check.inputs(3 + attrs.flag("scale") + attrs.flag("center")) ||
        !check.mixed_floats() || !check_x(check, in, 0) || !check_vectors(check, in, 1, 0))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = apply_gradient;
  op.reference = [](const ReferenceCall& call) {
    const Shape& shape = call.inputs[0].type.shape;
    const bool scale = call.attrs.flag("scale"), center = call.attrs.flag("center");
    const int64_t channels = channels_of(shape);
    std::vector<double> factor(static_cast<size_t>(channels)), offset(factor);
    for (int64_t c = 0; c < channels; ++c) {
      const auto i = static_cast<size_t>(c);
      factor[i] = rstd(in(call, 2), c, call.attrs.real("epsilon")) * (scale ? in(call, 3)[c] : 1.0);
      offset[i] = center ? in(call, scale ? 4 : 3)[c] : 0.0;
    }
    map_channels(out(call), rows_of(shape), channels,
                 [x = in(call, 0), mean = in(call, 1), f = factor.data(), o = offset.data()](int64_t i, int64_t c) {
                   return (x[i] - mean[c]) * f[c] + o[c];
                 });
  };
  op.error_units = 8;
  const Attrs full = {{"epsilon", 1e-3}, {"scale", true}, {"center", true}};
  const Attrs batch = {{"epsilon", 1e-3}, {"scale", true}, {"center", true}, {"batch_stats", true}};
  const auto inputs = [](const TensorType& x, size_t vectors) {
    Types types(vectors + 1, f32({x.shape.back()}));
    types[0] = x;
    return types;
  };
  const std::vector<std::string> fill = {"normal", "normal", "positive", "normal", "normal"};
  const auto first = [&](size_t n) {
    return std::vector<std::string>(fill.begin(), fill.begin() + static_cast<long>(n));
  };
  // With batch_stats the gradient of x goes through mean and var, which are plain inputs here, so finite differences do
  // not apply. The harness has a separate test for it.
  op.cases = {{"frozen", inputs(f32({2, 3, 4, 5}), 4), full, fill, {0, 3, 4}},
              {"batch", inputs(f32({2, 3, 4, 17}), 4), batch, fill, {3, 4}},
              {"bare", inputs(f32({3, 7}), 2), {{"epsilon", 1e-5}}, first(3), {0}},
              {"scale_only", inputs(f32({3, 5}), 3), {{"epsilon", 1e-3}, {"scale", true}}, first(4), {0, 3}},
              {"center_only", inputs(f32({3, 1}), 3), {{"epsilon", 1e-3}, {"center", true}}, first(4), {0, 3}}};
  return op;
}

OpDef grad_stats_op() {
  OpDef op = make("batch_norm_grad_stats", OpKind::kReduction, Recompute::kCostly);
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("batch_norm_grad_stats", in, attrs);
    if (!check.inputs(4) || !check.mixed_floats() || !check_x(check, in, 1) || !check.same_shape(0, 1) ||
        !check_vectors(check, in, 2, 1) || !check.real("epsilon"))
      return check.failed();
    return check.outputs({in[2], in[2]});
  };
  op.reference = [](const ReferenceCall& call) {
    const Shape& shape = call.inputs[1].type.shape;
    const int64_t rows = rows_of(shape), channels = channels_of(shape);
    const double *dy = in(call, 0), *x = in(call, 1), *mean = in(call, 2), *var = in(call, 3);
    double* dgamma = out(call, 0);
    sum_channels(dgamma, rows, channels, [&](int64_t i, int64_t c) { return dy[i] * (x[i] - mean[c]); });
    for (int64_t c = 0; c < channels; ++c) dgamma[c] *= rstd(var, c, call.attrs.real("epsilon"));
    sum_channels(out(call, 1), rows, channels, [&](int64_t i, int64_t) { return dy[i]; });
  };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 4.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 16;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "positive"};
  op.cases = {{"image", {f32({4, 3, 3, 5}), f32({4, 3, 3, 5}), f32({5}), f32({5})}, {{"epsilon", 1e-3}}, fill, {}},
              {"rows", {f32({17, 3}), f32({17, 3}), f32({3}), f32({3})}, {{"epsilon", 1e-3}}, fill, {}},
              {"wide", {f32({2, 5, 5, 33}), f32({2, 5, 5, 33}), f32({33}), f32({33})}, {{"epsilon", 1e-5}}, fill, {}}};
  return op;
}

OpDef input_grad_op() {
  OpDef op = make("batch_norm_input_grad", OpKind::kElementwise, Recompute::kCheap);
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("batch_norm_input_grad", in, attrs);
    if (!check.optional_flag("scale") || !check.inputs(6 + attrs.flag("scale")) || !check.mixed_floats() ||
        !check_x(check, in, 1) || !check.same_shape(0, 1) || !check_vectors(check, in, 2, 1) ||
        !check.real("epsilon") || (attrs.has(kSummedRows) && !check.integer(kSummedRows, 1)))
      return check.failed();
    return check.outputs({in[1]});
  };
  op.reference = [](const ReferenceCall& call) {
    const Shape& shape = call.inputs[1].type.shape;
    const int64_t rows = rows_of(shape), channels = channels_of(shape);
    const double *mean = in(call, 2), *var = in(call, 3), *dgamma = in(call, 4), *dbeta = in(call, 5);
    const double* gamma = call.attrs.flag("scale") ? in(call, 6) : nullptr;
    std::vector<double> r(static_cast<size_t>(channels)), factor(r);
    for (int64_t c = 0; c < channels; ++c) {
      r[static_cast<size_t>(c)] = rstd(var, c, call.attrs.real("epsilon"));
      factor[static_cast<size_t>(c)] = r[static_cast<size_t>(c)] * (gamma ? gamma[c] : 1.0);
    }
    const double n = summed_rows(call.attrs, static_cast<double>(rows));
    map_channels(out(call), rows, channels,
                 [&, dy = in(call, 0), x = in(call, 1), s = r.data(), f = factor.data()](int64_t i, int64_t c) {
                   const double xhat = (x[i] - mean[c]) * s[c];
                   return f[c] * (dy[i] - (dbeta[c] + xhat * dgamma[c]) / n);
                 });
  };
  op.error_units = 8;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "positive", "normal", "normal", "normal"};
  const Types bare = {f32({3, 7}), f32({3, 7}), f32({7}), f32({7}), f32({7}), f32({7})};
  op.cases = {{"image",
               {f32({2, 3, 4, 5}), f32({2, 3, 4, 5}), f32({5}), f32({5}), f32({5}), f32({5}), f32({5})},
               {{"epsilon", 1e-3}, {"scale", true}},
               fill,
               {}},
              {"bare", bare, {{"epsilon", 1e-3}}, {fill.begin(), fill.begin() + 6}, {}},
              {"piece", bare, {{"epsilon", 1e-3}, {kSummedRows, int64_t{10}}}, {fill.begin(), fill.begin() + 6}, {}}};
  return op;
}

OpDef frozen_grad_op() {
  OpDef op = make("batch_norm_frozen_grad", OpKind::kElementwise, Recompute::kCheap);
  op.in_place = {{0, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("batch_norm_frozen_grad", in, attrs);
    if (!check.optional_flag("scale") || !check.inputs(2 + attrs.flag("scale")) || !check.mixed_floats() ||
        !check_x(check, in, 0) || !check_vectors(check, in, 1, 0) || !check.real("epsilon"))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    const Shape& shape = call.inputs[0].type.shape;
    const double *dy = in(call, 0), *var = in(call, 1);
    const double* gamma = call.attrs.flag("scale") ? in(call, 2) : nullptr;
    const double epsilon = call.attrs.real("epsilon");
    map_channels(out(call), rows_of(shape), channels_of(shape),
                 [=](int64_t i, int64_t c) { return dy[i] * (gamma ? gamma[c] : 1.0) * rstd(var, c, epsilon); });
  };
  const Attrs scale = {{"epsilon", 1e-3}, {"scale", true}};
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({5}), f32({5})}, scale, {"normal", "positive", "normal"}, {}},
              {"bare", {f32({3, 7}), f32({7})}, {{"epsilon", 1e-3}}, {"normal", "positive"}, {}}};
  return op;
}

OpDef moving_average_op() {
  OpDef op = make("moving_average", OpKind::kElementwise, Recompute::kNever);
  op.in_place = {{0, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("moving_average", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1) || !check.real("momentum"))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    const double momentum = call.attrs.real("momentum");
    map_elements(out(call), call.outputs[0].elements(),
                 [=, a = in(call, 0), b = in(call, 1)](int64_t i) { return a[i] * momentum + b[i] * (1 - momentum); });
  };
  op.cases = {{"usual", {f32({17}), f32({17})}, {{"momentum", 0.99}}, {"normal", "normal"}, {}},
              {"one", {f32({1}), f32({1})}, {{"momentum", 0.9}}, {"normal", "normal"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> batch_norm_ops() {
  return {stats_op(), apply_op(), grad_stats_op(), input_grad_op(), frozen_grad_op(), moving_average_op()};
}

}  // namespace plimsoll::engine
