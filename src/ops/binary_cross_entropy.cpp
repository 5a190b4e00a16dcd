// Binary cross-entropy, averaged over the last axis, from logits or from probabilities, which are clipped as in Keras
// on TensorFlow (keras/src/backend/tensorflow/nn.py and losses/losses.py).
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

bool check_attrs(InferCheck& check) {
  return check.optional_flag("from_logits") && check.optional_real("label_smoothing");
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("binary_cross_entropy", in, attrs);
  if (!check.inputs(2) || !check.mixed_floats() || !check.same_shape(0, 1) || !check_attrs(check) ||
      !check.require(in[0].shape.rank() >= 1, "needs an axis"))
    return check.failed();
  return check.outputs({{wide(in[0].dtype), Shape{rows_of(in[0].shape)}}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("binary_cross_entropy_grad", in, attrs);
  if (!check.inputs(3) || !check.mixed_floats() || !check.same_shape(1, 2) || !check_attrs(check) ||
      !check.require(in[1].shape.rank() >= 1, "needs an axis"))
    return check.failed();
  const int64_t rows = rows_of(in[1].shape);
  check.require(in[0].shape == Shape{rows}, fmt::format("dloss must be [{}]", rows));
  return check.outputs({in[1]});
}

struct Loss {
  bool from_logits;
  double smoothing;

  explicit Loss(const Attrs& attrs)
      : from_logits(attrs.flag("from_logits")), smoothing(attrs.real_or("label_smoothing", 0)) {}

  double smoothed(double t) const { return smoothing == 0 ? t : t * (1 - smoothing) + 0.5 * smoothing; }
  double value(double x, double target) const {
    const double t = smoothed(target);
    if (from_logits) return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::fabs(x)));
    const double p = std::min(std::max(x, kEpsilon), 1 - kEpsilon);
    return -(t * std::log(p) + (1 - t) * std::log(1 - p));
  }
  double slope(double x, double target) const {
    const double t = smoothed(target);
    if (from_logits) return (x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x))) - t;
    // As in tf.clip_by_value, values equal to a bound pass the gradient.
    if (x < kEpsilon || x > 1 - kEpsilon) return 0;
    return -t / x + (1 - t) / (1 - x);
  }
};

}  // namespace

std::vector<OpDef> binary_cross_entropy_ops() {
  OpDef op;
  op.name = "binary_cross_entropy";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    return {g.b.add1("binary_cross_entropy_grad", {g.grad(), g.in(0), g.in(1)}, g.node.attrs), kNone};
  };
  op.reference = [](const ReferenceCall& call) {
    const int64_t k = channels_of(call.inputs[0].type.shape);
    const Loss loss(call.attrs);
    for_each(call.outputs[0].elements(), k * 16, [&](int64_t row) {
      double sum = 0;
      for (int64_t i = row * k; i < (row + 1) * k; ++i) sum += loss.value(in(call, 0)[i], in(call, 1)[i]);
      out(call)[row] = sum / static_cast<double>(k);
    });
  };
  op.error_units = 8;
  const Attrs logits = {{"from_logits", true}}, smooth = {{"from_logits", true}, {"label_smoothing", 0.2}};
  op.cases = {{"logits", {f32({5, 1}), f32({5, 1})}, logits, {"normal", "labels:2"}, {0}},
              {"smoothed", {f32({3, 17}), f32({3, 17})}, smooth, {"normal", "labels:2"}, {0}},
              {"pixels", {f32({1, 3, 3, 1}), f32({1, 3, 3, 1})}, logits, {"normal", "uniform"}, {0}},
              {"probabilities", {f32({4, 3}), f32({4, 3})}, {}, {"probabilities", "labels:2"}, {0}}};

  OpDef grad;
  grad.name = "binary_cross_entropy_grad";
  grad.recompute = Recompute::kCostly;
  grad.in_place = {{1, 0}};
  grad.infer = infer_grad;
  grad.reference = [](const ReferenceCall& call) {
    const int64_t k = channels_of(call.inputs[1].type.shape);
    const Loss loss(call.attrs);
    map_elements(out(call), call.outputs[0].elements(), [&](int64_t i) {
      return in(call, 0)[i / k] / static_cast<double>(k) * loss.slope(in(call, 1)[i], in(call, 2)[i]);
    });
  };
  grad.error_units = 8;
  grad.cases = {
      {"logits", {f32({5}), f32({5, 1}), f32({5, 1})}, logits, {"normal", "normal", "labels:2"}, {}},
      {"smoothed", {f32({3}), f32({3, 17}), f32({3, 17})}, smooth, {"normal", "normal", "labels:2"}, {}},
      {"probabilities", {f32({4}), f32({4, 3}), f32({4, 3})}, {}, {"normal", "probabilities", "labels:2"}, {}}};
  return {op, grad};
}

}  // namespace plimsoll::engine
