// CTC loss per sample from logits x [N,T,K] and labels i32 [N,L], as Keras computes it on TensorFlow. Class 0 is the
// blank. The number of labels of a sample is the number of its elements that are not 0, and its labels are the first
// that many elements.
//
// A path has one class per step; it spells the labels if they remain after merging repeats and dropping blanks. The
// loss is -log of the probability of all paths that spell the labels (Graves et al. 2006). The states of a path are
// blank, label 1, blank, label 2, ..., blank: `forward` has the log probability of reaching a state at a step, and
// `backward` that of ending well from there. Labels that no path of T steps can spell have an infinite loss.
#include <cmath>
#include <limits>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

bool check_inputs(InferCheck& check, InTypes in, size_t x) {
  return check.floats({x}) && check.rank(x, 3) && check.type(x + 1, DType::kInt32) && check.rank(x + 1, 2) &&
         check.require(in[x].shape[0] == in[x + 1].shape[0], "x and the labels must have the same samples");
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("ctc", in, attrs);
  if (!check.inputs(2) || !check_inputs(check, in, 0)) return check.failed();
  return check.outputs({{wide(in[0].dtype), Shape{in[0].shape[0]}}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("ctc_grad", in, attrs);
  if (!check.inputs(3) || !check.floats({0, 1}) || !check_inputs(check, in, 1)) return check.failed();
  check.require(in[0].shape == Shape{in[1].shape[0]}, "dloss must have one element per sample");
  return check.outputs({in[1]});
}

double log_add(double a, double b) {
  const double most = std::max(a, b);
  return most == kNever ? kNever : most + std::log1p(std::exp(std::min(a, b) - most));
}

// The states of one sample.
class Lattice {
 public:
  Lattice(const double* x, const int32_t* labels, int64_t steps, int64_t classes, int64_t most)
      : x_(x), steps_(steps), classes_(classes) {
    const auto used = std::count_if(labels, labels + most, [](int32_t label) { return label != 0; });
    symbols_.assign(static_cast<size_t>(2 * used + 1), 0);
    for (int64_t i = 0; i < used; ++i) {
      symbols_[static_cast<size_t>(2 * i + 1)] = labels[i];
      valid_ = valid_ && labels[i] >= 0 && labels[i] < classes;
    }
    for (int64_t t = 0; t < steps; ++t) {
      const double* row = x + t * classes;
      const double top = *std::max_element(row, row + classes);
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - top);
      totals_.push_back(top + std::log(sum));
    }
  }

  bool valid() const { return valid_; }  // false: a label is no class; checked data never have one
  int64_t states() const { return static_cast<int64_t>(symbols_.size()); }
  int32_t symbol(int64_t state) const { return symbols_[static_cast<size_t>(state)]; }
  double log_probability(int64_t t, int64_t k) const { return x_[t * classes_ + k] - totals_[static_cast<size_t>(t)]; }
  double emit(int64_t t, int64_t state) const { return log_probability(t, symbol(state)); }
  // A path may go from a label to the next one without a blank between them if they differ.
  bool skips_to(int64_t state) const { return state >= 3 && state % 2 == 1 && symbol(state) != symbol(state - 2); }

  std::vector<double> forward() const {
    const int64_t n = states();
    std::vector<double> a(static_cast<size_t>(steps_ * n), kNever);
    a[0] = emit(0, 0);
    if (n > 1) a[1] = emit(0, 1);
    for (int64_t t = 1; t < steps_; ++t) {
      const double* before = a.data() + (t - 1) * n;
      for (int64_t s = 0; s < n; ++s) {
        double sum = before[s];
        if (s >= 1) sum = log_add(sum, before[s - 1]);
        if (skips_to(s)) sum = log_add(sum, before[s - 2]);
        a[static_cast<size_t>(t * n + s)] = sum + emit(t, s);
      }
    }
    return a;
  }

  std::vector<double> backward() const {
    const int64_t n = states();
    std::vector<double> b(static_cast<size_t>(steps_ * n), kNever);
    const auto at = [&](int64_t t, int64_t s) -> double& { return b[static_cast<size_t>(t * n + s)]; };
    for (int64_t s = std::max<int64_t>(n - 2, 0); s < n; ++s) at(steps_ - 1, s) = 0;
    for (int64_t t = steps_ - 2; t >= 0; --t) {
      for (int64_t s = 0; s < n; ++s) {
        double sum = at(t + 1, s) + emit(t + 1, s);
        if (s + 1 < n) sum = log_add(sum, at(t + 1, s + 1) + emit(t + 1, s + 1));
        if (s + 2 < n && skips_to(s + 2)) sum = log_add(sum, at(t + 1, s + 2) + emit(t + 1, s + 2));
        at(t, s) = sum;
      }
    }
    return b;
  }

  double log_likelihood(const std::vector<double>& forward) const {
    const double last = forward.back();
    return states() == 1 ? last : log_add(last, forward[forward.size() - 2]);
  }

 private:
  const double* x_;
  int64_t steps_, classes_;
  bool valid_ = true;
  std::vector<int32_t> symbols_;
  std::vector<double> totals_;  // log of the sum of exp(x), per step
};

Lattice lattice_of(const ReferenceCall& call, size_t x, int64_t sample) {
  const Shape& shape = call.inputs[x].type.shape;
  const int64_t most = call.inputs[x + 1].type.shape[1];
  return {in(call, x) + sample * shape[1] * shape[2], call.inputs[x + 1].as<int32_t>() + sample * most, shape[1],
          shape[2], most};
}

void forward_reference(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  for_each(shape[0], shape[1] * shape[2] * 16, [&](int64_t sample) {
    const Lattice lattice = lattice_of(call, 0, sample);
    out(call)[sample] =
        lattice.valid() ? -lattice.log_likelihood(lattice.forward()) : std::numeric_limits<double>::quiet_NaN();
  });
}

// dloss/dx is the probability of a class minus its share of all paths that spell the labels.
void grad_reference(const ReferenceCall& call) {
  const Shape& shape = call.inputs[1].type.shape;
  const int64_t steps = shape[1], classes = shape[2];
  for_each(shape[0], steps * classes * 32, [&](int64_t sample) {
    const Lattice lattice = lattice_of(call, 1, sample);
    double* dx = out(call) + sample * steps * classes;
    const double d = in(call, 0)[sample];
    if (!lattice.valid()) return std::fill(dx, dx + steps * classes, std::numeric_limits<double>::quiet_NaN());
    const std::vector<double> forward = lattice.forward(), backward = lattice.backward();
    const double total = lattice.log_likelihood(forward);
    for (int64_t t = 0; t < steps; ++t) {
      std::vector<double> share(static_cast<size_t>(classes), 0.0);
      for (int64_t s = 0; s < lattice.states(); ++s) {
        const auto at = static_cast<size_t>(t * lattice.states() + s);
        share[static_cast<size_t>(lattice.symbol(s))] += std::exp(forward[at] + backward[at] - total);
      }
      for (int64_t k = 0; k < classes; ++k)
        dx[t * classes + k] = d * (std::exp(lattice.log_probability(t, k)) - share[static_cast<size_t>(k)]);
    }
  });
}

double flops(InTypes in, size_t x) {
  const auto samples = static_cast<double>(in[x].shape[0]), steps = static_cast<double>(in[x].shape[1]);
  return samples * steps * (16 * static_cast<double>(in[x].shape[2]) + 60 * static_cast<double>(in[x + 1].shape[1]));
}

OpDef forward_op() {
  OpDef op;
  op.name = "ctc";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    return {g.b.add1("ctc_grad", {g.grad(), g.in(0), g.in(1)}), kNone};
  };
  op.reference = forward_reference;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return flops(in, 0); };
  op.error_units = 8;
  op.cases = {{"words", {f32({4, 9, 6}), i32({4, 3})}, {}, {"normal", "labels:6"}, {0}},
              {"repeats", {f32({3, 8, 5}), i32({3, 3})}, {}, {"normal", "value:2"}, {0}},
              {"no_labels", {f32({2, 5, 4}), i32({2, 3})}, {}, {"normal", "value:0"}, {0}},
              {"one_path", {f32({2, 3, 4}), i32({2, 2})}, {}, {"normal", "value:1"}, {0}},
              {"one_step", {f32({3, 1, 4}), i32({3, 1})}, {}, {"normal", "labels:4"}, {0}},
              {"long", {f32({2, 120, 33}), i32({2, 40})}, {}, {"normal", "labels:33"}, {}},
              {"one_class", {f32({2, 4, 1}), i32({2, 2})}, {}, {"normal", "value:0"}, {0}}};
  return op;
}

OpDef grad_op() {
  OpDef op;
  op.name = "ctc_grad";
  op.recompute = Recompute::kCostly;
  op.infer = infer_grad;
  op.reference = grad_reference;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 2 * flops(in, 1); };
  op.error_units = 8;
  op.cases = {{"words", {f32({4}), f32({4, 9, 6}), i32({4, 3})}, {}, {"normal", "normal", "labels:6"}, {}},
              {"repeats", {f32({3}), f32({3, 8, 5}), i32({3, 3})}, {}, {"normal", "normal", "value:2"}, {}},
              {"no_labels", {f32({2}), f32({2, 5, 4}), i32({2, 3})}, {}, {"normal", "normal", "value:0"}, {}},
              {"one_step", {f32({3}), f32({3, 1, 4}), i32({3, 1})}, {}, {"normal", "normal", "labels:4"}, {}},
              {"long", {f32({2}), f32({2, 120, 33}), i32({2, 40})}, {}, {"normal", "normal", "labels:33"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> ctc_ops() {
  return {forward_op(), grad_op()};
}

}  // namespace plimsoll::engine
