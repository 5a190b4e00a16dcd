// Cross-entropy per row, from logits (softmax_cross_entropy) and from probabilities (cross_entropy), as Keras computes
// it on TensorFlow (keras/src/backend/tensorflow/nn.py). From probabilities with one-hot targets, the row is normalised
// and then clipped. With sparse targets it is clipped, and its logarithms then go through a softmax, which normalises.
// The gradient from logits is softmax - target, as in TensorFlow's kernel, which assumes that targets sum to 1.
#include <cmath>
#include <limits>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

double clip(double p) {
  return std::min(std::max(p, kEpsilon), 1 - kEpsilon);
}
// As in tf.clip_by_value, values equal to a bound pass the gradient.
bool inside(double p) {
  return p >= kEpsilon && p <= 1 - kEpsilon;
}

// Input `first` is x [..,K]; the next input is the target.
bool check_inputs(InferCheck& check, InTypes in, const Attrs& attrs, size_t first) {
  if (!check.require(in[first].shape.rank() >= 1, "needs an axis of classes") || !check.optional_flag("sparse") ||
      !check.optional_real("label_smoothing"))
    return false;
  const int64_t rows = rows_of(in[first].shape);
  if (attrs.flag("sparse"))
    return check.type(first + 1, DType::kInt32) &&
           check.require(in[first + 1].shape == Shape{rows}, fmt::format("sparse targets must be [{}]", rows));
  return check.floats({first, first + 1}) && check.same_shape(first, first + 1);
}

Result<Types> infer_forward(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check_inputs(check, in, attrs, 0)) return check.failed();
  return check.outputs({{wide(in[0].dtype), Shape{rows_of(in[0].shape)}}});
}

Result<Types> infer_grad(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(3) || !check.floats({0, 1}) || !check_inputs(check, in, attrs, 1)) return check.failed();
  const int64_t rows = rows_of(in[1].shape);
  check.require(in[0].shape == Shape{rows}, fmt::format("dloss must be [{}]", rows));
  return check.outputs({in[1]});
}

// The smoothed target of one row, sparse or not.
class Target {
 public:
  Target(const ReferenceCall& call, size_t input, int64_t classes)
      : classes_(classes),
        sparse_(call.attrs.flag("sparse") ? call.inputs[input].as<int32_t>() : nullptr),
        dense_(sparse_ ? nullptr : call.inputs[input].as<double>()),
        smoothing_(call.attrs.real_or("label_smoothing", 0)) {}

  bool sparse() const { return sparse_ != nullptr; }
  // A label out of range has no loss. Checked data sources never return one.
  bool valid(int64_t row) const { return !sparse_ || (sparse_[row] >= 0 && sparse_[row] < classes_); }
  double operator()(int64_t row, int64_t k) const {
    const double t = sparse_ ? (sparse_[row] == k ? 1.0 : 0.0) : dense_[row * classes_ + k];
    return smoothing_ == 0 ? t : t * (1 - smoothing_) + smoothing_ / static_cast<double>(classes_);
  }

 private:
  int64_t classes_;
  const int32_t* sparse_;
  const double* dense_;
  double smoothing_;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double log_sum_exp(const double* x, int64_t k) {
  const double most = *std::max_element(x, x + k);
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

void softmax_reference(const ReferenceCall& call) {
  const int64_t k = channels_of(call.inputs[0].type.shape);
  const Target target(call, 1, k);
  for_each(rows_of(call.inputs[0].type.shape), k * 16, [&](int64_t row) {
    const double* x = in(call, 0) + row * k;
    const double total = log_sum_exp(x, k);
    double loss = target.valid(row) ? 0 : kNaN;
    for (int64_t i = 0; i < k; ++i) loss += target(row, i) * (total - x[i]);
    out(call)[row] = loss;
  });
}

void softmax_grad_reference(const ReferenceCall& call) {
  const int64_t k = channels_of(call.inputs[1].type.shape);
  const Target target(call, 2, k);
  for_each(rows_of(call.inputs[1].type.shape), k * 16, [&](int64_t row) {
    const double* x = in(call, 1) + row * k;
    const double total = log_sum_exp(x, k), d = target.valid(row) ? in(call, 0)[row] : kNaN;
    for (int64_t i = 0; i < k; ++i) out(call)[row * k + i] = d * (std::exp(x[i] - total) - target(row, i));
  });
}

double sum_of(const double* p, int64_t k, double (*f)(double)) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += f(p[i]);
  return sum;
}

double same(double p) {
  return p;
}

void probability_reference(const ReferenceCall& call) {
  const int64_t k = channels_of(call.inputs[0].type.shape);
  const Target target(call, 1, k);
  for_each(rows_of(call.inputs[0].type.shape), k * 16, [&](int64_t row) {
    const double* p = in(call, 0) + row * k;
    const double sum = sum_of(p, k, target.sparse() ? clip : same);
    double loss = target.valid(row) ? 0 : kNaN;
    for (int64_t i = 0; i < k; ++i)
      loss -= target(row, i) * std::log(target.sparse() ? clip(p[i]) / sum : clip(p[i] / sum));
    out(call)[row] = loss;
  });
}

void probability_grad_reference(const ReferenceCall& call) {
  const int64_t k = channels_of(call.inputs[1].type.shape);
  const Target target(call, 2, k);
  for_each(rows_of(call.inputs[1].type.shape), k, [&](int64_t row) {
    const double* p = in(call, 1) + row * k;
    double* dp = out(call) + row * k;
    const double d = target.valid(row) ? in(call, 0)[row] : kNaN;
    if (target.sparse()) {  // loss = log(sum of clipped) - sum of t log(clipped)
      const double sum = sum_of(p, k, clip);
      for (int64_t i = 0; i < k; ++i) dp[i] = inside(p[i]) ? d * (1 / sum - target(row, i) / p[i]) : 0.0;
      return;
    }
    // q = p / sum; dloss/dq = -t / q where q is not clipped; then through the quotient.
    const double sum = sum_of(p, k, same);
    double through_sum = 0;
    for (int64_t i = 0; i < k; ++i)
      if (inside(p[i] / sum)) through_sum += target(row, i);
    for (int64_t i = 0; i < k; ++i) {
      const double direct = inside(p[i] / sum) ? target(row, i) * sum / p[i] : 0.0;
      dp[i] = d * (through_sum - direct) / sum;
    }
  });
}

OpDef forward_op(const std::string& name, void (*reference)(const ReferenceCall&), const std::string& x) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer_forward(name, in, attrs); };
  op.gradient = [name](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    return {g.b.add1(name + "_grad", {g.grad(), g.in(0), g.in(1)}, g.node.attrs), kNone};
  };
  op.reference = reference;
  op.error_units = 8;
  op.cases = {{"one_hot", {f32({4, 10}), f32({4, 10})}, {}, {x, "onehot"}, {0}},
              {"soft", {f32({3, 5}), f32({3, 5})}, {}, {x, "probabilities"}, {0}},
              {"smoothed", {f32({3, 17}), f32({3, 17})}, {{"label_smoothing", 0.1}}, {x, "onehot"}, {0}},
              {"sparse", {f32({4, 10}), i32({4})}, {{"sparse", true}}, {x, "labels:10"}, {0}},
              {"sparse_pixels", {f32({2, 3, 3, 5}), i32({18})}, {{"sparse", true}}, {x, "labels:5"}, {0}},
              {"batch1", {f32({1, 3}), i32({1})}, {{"sparse", true}}, {x, "labels:3"}, {0}}};
  return op;
}

OpDef grad_op(const std::string& name, void (*reference)(const ReferenceCall&), const std::string& x) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.in_place = {{1, 0}};
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer_grad(name, in, attrs); };
  op.reference = reference;
  op.error_units = 8;
  op.cases = {
      {"one_hot", {f32({4}), f32({4, 10}), f32({4, 10})}, {}, {"normal", x, "onehot"}, {}},
      {"smoothed", {f32({3}), f32({3, 17}), f32({3, 17})}, {{"label_smoothing", 0.1}}, {"normal", x, "onehot"}, {}},
      {"sparse", {f32({18}), f32({2, 3, 3, 5}), i32({18})}, {{"sparse", true}}, {"normal", x, "labels:5"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> cross_entropy_ops() {
  return {forward_op("softmax_cross_entropy", softmax_reference, "normal"),
          grad_op("softmax_cross_entropy_grad", softmax_grad_reference, "normal"),
          forward_op("cross_entropy", probability_reference, "positive"),
          grad_op("cross_entropy_grad", probability_grad_reference, "probabilities")};
}

}  // namespace plimsoll::engine
