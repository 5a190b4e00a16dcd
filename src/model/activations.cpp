// Keras's activation functions as nodes. The formulas are those of keras/src/backend/tensorflow/nn.py, so that the
// slopes at the kinks are the same too. Softmax and sigmoid are single nodes, so that a loss can find the logits before
// them.
#include "model/activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ops/build.h"

namespace plimsoll::engine {
namespace {

Activation plain(const std::string& op, const Attrs& attrs = {}) {
  return [=](const BuildCall& call, ValueId x) { return call.add(op, {x}, attrs); };
}

ValueId affine(const BuildCall& call, ValueId x, double scale, double offset) {
  return call.add("affine", {x}, {{"scale", scale}, {"offset", offset}});
}
ValueId number(const BuildCall& call, ValueId x, double value) {
  return constant_like(call.b, x, value);
}
ValueId above(const BuildCall& call, ValueId x, double bound) {
  return call.add("less", {number(call, x, bound), x});
}
ValueId below(const BuildCall& call, ValueId x, double bound) {
  return call.add("less", {x, number(call, x, bound)});
}
ValueId at_most(const BuildCall& call, ValueId x, double bound) {
  return call.add("less_equal", {x, number(call, x, bound)});
}
ValueId select(const BuildCall& call, ValueId condition, ValueId a, ValueId b) {
  return call.add("select", {condition, a, b});
}

Activation elu(double alpha) {
  if (alpha >= 0) return plain("elu", {{"alpha", alpha}});
  return [=](const BuildCall& call, ValueId x) {  // with this sign the op could not find its slope from its output
    const ValueId one = call.add("elu", {x}, {{"alpha", 1.0}});
    return select(call, above(call, x, 0), one, affine(call, one, alpha, 0));
  };
}

Activation leaky_relu(double slope) {
  return relu_activation({}, slope, 0);
}

// TensorFlow's kernel has the upper slope at 0.
ValueId selu(const BuildCall& call, ValueId x) {
  constexpr double kScale = 1.0507009873554804934193349852946, kScaledAlpha = 1.7580993408473768599402175208123;
  const ValueId low = call.add("expm1", {call.add("minimum", {x, number(call, x, 0)})});
  return select(call, below(call, x, 0), affine(call, low, kScaledAlpha, 0), affine(call, x, kScale, 0));
}

Activation celu(double alpha) {
  return [=](const BuildCall& call, ValueId x) {
    const ValueId zero = number(call, x, 0);
    const ValueId low = call.add("expm1", {affine(call, call.add("minimum", {x, zero}), 1 / alpha, 0)});
    return call.add("add", {call.add("maximum", {x, zero}), affine(call, low, alpha, 0)});
  };
}

Activation soft_shrink(double threshold) {
  return [=](const BuildCall& call, ValueId x) {
    const ValueId low = select(call, below(call, x, -threshold), affine(call, x, 1, threshold), number(call, x, 0));
    return select(call, above(call, x, threshold), affine(call, x, 1, -threshold), low);
  };
}

Activation hard_shrink(double threshold) {
  return [=](const BuildCall& call, ValueId x) {
    return select(call, above(call, call.add("abs", {x}), threshold), x, number(call, x, 0));
  };
}

ValueId hard_tanh(const BuildCall& call, ValueId x) {
  return call.add("minimum", {call.add("maximum", {x, number(call, x, -1)}), number(call, x, 1)});
}

ValueId log_sigmoid(const BuildCall& call, ValueId x) {
  return affine(call, call.add("softplus", {affine(call, x, -1, 0)}), -1, 0);
}

ValueId mish(const BuildCall& call, ValueId x) {
  return call.add("multiply", {x, call.add("tanh", {call.add("softplus", {x})})});
}

ValueId sparse_plus(const BuildCall& call, ValueId x) {
  const ValueId middle = affine(call, call.add("square", {affine(call, x, 1, 1)}), 0.25, 0);
  const ValueId upper = select(call, below(call, x, 1), middle, x);
  return select(call, at_most(call, x, -1), number(call, x, 0), upper);
}

ValueId sparse_sigmoid(const BuildCall& call, ValueId x) {
  const ValueId one = number(call, x, 1);
  const ValueId upper = select(call, call.add("less_equal", {one, x}), one, affine(call, x, 0.5, 0.5));
  return select(call, at_most(call, x, -1), number(call, x, 0), upper);
}

Activation squareplus(double b) {
  return [=](const BuildCall& call, ValueId x) {
    const ValueId root = call.add("sqrt", {affine(call, call.add("square", {x}), 1, b)});
    return affine(call, call.add("add", {x, root}), 0.5, 0);
  };
}

ValueId tanh_shrink(const BuildCall& call, ValueId x) {
  return call.add("subtract", {x, call.add("tanh", {x})});
}

ValueId sum_of_rows(const BuildCall& call, ValueId x) {
  std::vector<int64_t> one = call.shape(x).dims;
  one.back() = 1;
  return call.add("reduce_to", {x}, {{"shape", one}});
}

// x - max - log(sum(exp(x - max))). The maximum cancels, so nothing flows back through it.
ValueId log_softmax(const BuildCall& call, ValueId x) {
  const Shape whole = call.shape(x);
  const auto last = static_cast<int64_t>(whole.rank()) - 1;
  const ValueId largest = call.add("reduce_max", {x}, {{"axes", std::vector<int64_t>{last}}});
  const ValueId shift = broadcast_to(call.b, call.add("stop_gradient", {largest}), whole);
  const ValueId shifted = call.add("subtract", {x, shift});
  const ValueId total = call.add("log", {sum_of_rows(call, call.add("exp", {shifted}))});
  return call.add("subtract", {shifted, broadcast_to(call.b, total, whole)});
}

// As Keras 3.15 computes it: the threshold comes from the sum of all partial sums of the support.
ValueId sparsemax(const BuildCall& call, ValueId x) {
  const Shape whole = call.shape(x);
  const auto last = static_cast<int64_t>(whole.rank()) - 1;
  const ValueId sorted = call.b.add("sort", {x}, {{"descending", true}}).front();
  const ValueId sums = call.add("cumsum", {sorted}, {{"axis", last}, {"reverse", false}, {"exclusive", false}});
  const std::string dtype(name_of(call.b.graph().type(x).dtype));
  const ValueId ramp =
      call.add("iota", {}, {{"shape", std::vector<int64_t>{whole.back()}}, {"axis", int64_t{0}}, {"dtype", dtype}});
  const ValueId places = broadcast_to(call.b, affine(call, ramp, 1, 1), whole);
  const ValueId zero = number(call, x, 0);
  const ValueId excess = call.add("subtract", {sorted, call.add("divide", {affine(call, sums, 1, -1), places})});
  const ValueId support = call.add("less", {zero, excess});
  const ValueId total = sum_of_rows(call, select(call, support, sums, zero));
  const ValueId tau = call.add("divide", {affine(call, total, 1, -1), sum_of_rows(call, support)});
  return call.add("maximum", {call.add("subtract", {x, broadcast_to(call.b, tau, whole)}), zero});
}

struct Named {
  std::string_view name;
  Activation (*make)();
};

// Keras's functions with their default arguments. The string "leaky_relu" has slope 0.2, the layer has 0.3.
constexpr std::array kNamed = {
    Named{"linear", [] { return Activation([](const BuildCall&, ValueId x) { return x; }); }},
    Named{"relu", [] { return relu_activation({}, 0, 0); }},
    Named{"relu6", [] { return relu_activation(6, 0, 0); }},
    Named{"leaky_relu", [] { return leaky_relu(0.2); }},
    Named{"elu", [] { return elu(1); }},
    Named{"selu", [] { return Activation(selu); }},
    Named{"celu", [] { return celu(1); }},
    Named{"gelu",
          [] {
            return plain("gelu", {{"approximate", false}});
          }},
    Named{"silu", [] { return plain("silu"); }},
    Named{"swish", [] { return plain("silu"); }},
    Named{"hard_silu", [] { return plain("hard_silu"); }},
    Named{"hard_swish", [] { return plain("hard_silu"); }},
    Named{"sigmoid", [] { return plain("sigmoid"); }},
    Named{"hard_sigmoid", [] { return plain("hard_sigmoid"); }},
    Named{"tanh", [] { return plain("tanh"); }},
    Named{"softmax", [] { return plain("softmax"); }},
    Named{"log_softmax", [] { return Activation(log_softmax); }},
    Named{"sparsemax", [] { return Activation(sparsemax); }},
    Named{"exponential", [] { return plain("exp"); }},
    Named{"softplus", [] { return plain("softplus"); }},
    Named{"softsign", [] { return plain("softsign"); }},
    Named{"soft_shrink", [] { return soft_shrink(0.5); }},
    Named{"hard_shrink", [] { return hard_shrink(0.5); }},
    Named{"tanh_shrink", [] { return Activation(tanh_shrink); }},
    Named{"hard_tanh", [] { return Activation(hard_tanh); }},
    Named{"log_sigmoid", [] { return Activation(log_sigmoid); }},
    Named{"mish", [] { return Activation(mish); }},
    Named{"sparse_plus", [] { return Activation(sparse_plus); }},
    Named{"sparse_sigmoid", [] { return Activation(sparse_sigmoid); }},
    Named{"squareplus", [] { return squareplus(4); }},
};

}  // namespace

Activation relu_activation(std::optional<double> max_value, double negative_slope, double threshold) {
  Attrs attrs;
  if (max_value) attrs.set("max_value", *max_value);
  if (negative_slope != 0) attrs.set("negative_slope", negative_slope);
  if (threshold != 0) attrs.set("threshold", threshold);
  return plain("relu", attrs);
}

Activation elu_activation(double alpha) {
  return elu(alpha);
}

ValueId along_axes(const BuildCall& call, ValueId x, std::span<const int64_t> axes, const Activation& of_last_axis) {
  const Shape shape = call.shape(x);
  std::vector<int64_t> moved;
  for (int64_t axis : axes) moved.push_back(*positive_axis(axis, shape.rank()));
  if (moved.size() == 1 && moved[0] + 1 == static_cast<int64_t>(shape.rank())) return of_last_axis(call, x);
  std::vector<int64_t> perm;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.rank()); ++d)
    if (std::find(moved.begin(), moved.end(), d) == moved.end()) perm.push_back(d);
  perm.insert(perm.end(), moved.begin(), moved.end());
  std::vector<int64_t> inverse(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) inverse[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  const bool moves = !std::is_sorted(perm.begin(), perm.end());
  if (moves) x = call.add("transpose", {x}, {{"perm", perm}});
  const std::vector<int64_t> dims = call.shape(x).dims;
  std::vector<int64_t> joined(dims.begin(), dims.end() - static_cast<long>(moved.size()));
  joined.push_back(shape.elements() / Shape(joined).elements());
  if (moved.size() > 1) x = call.add("reshape", {x}, {{"shape", joined}});
  x = of_last_axis(call, x);
  if (moved.size() > 1) x = call.add("reshape", {x}, {{"shape", dims}});
  return moves ? call.add("transpose", {x}, {{"perm", inverse}}) : x;
}

std::optional<Activation> named_activation(std::string_view name) {
  for (const Named& one : kNamed)
    if (one.name == name) return one.make();
  return std::nullopt;
}

}  // namespace plimsoll::engine
