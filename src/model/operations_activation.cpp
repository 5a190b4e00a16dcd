// Activations as operations: keras.ops.relu(x) and keras.activations.relu(x). The formulas are those of
// keras/src/backend/tensorflow/nn.py.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/activations.h"
#include "model/operation.h"

namespace plimsoll::engine {
namespace {

using Formula = std::function<Operand(OpWriter&, const Operand&)>;

OpBody of(OpReader& r, Formula formula) {
  const OpArgument x = r.operand("x", 0);
  return [x, formula = std::move(formula)](OpWriter& w) -> Operands { return {formula(w, w.floats(x.get(w)))}; };
}

OpBody plain(OpReader& r, const char* op, Attrs attrs = {}) {
  return of(r, [=](OpWriter& w, const Operand& x) { return w.unary(op, x, attrs); });
}

Operand above(OpWriter& w, const Operand& x, double bound) {
  return w.binary("less", w.number(bound), x);
}
Operand below(OpWriter& w, const Operand& x, double bound) {
  return w.binary("less", x, w.number(bound));
}

Attrs relu_attrs(std::optional<double> max_value, double slope, double threshold) {
  Attrs attrs{{"negative_slope", slope}};
  if (max_value) attrs.set("max_value", *max_value);
  if (threshold != 0) attrs.set("threshold", threshold);
  return attrs;
}

OpBody relu_with_options(OpReader& r) {
  const auto max_value = r.config.optional_real("max_value");
  const double slope = r.config.real("negative_slope", 0), threshold = r.config.real("threshold", 0);
  if (slope < 0 || max_value.value_or(0) < 0 || threshold < 0) r.refuse("a negative slope, max_value or threshold");
  return plain(r, "relu", relu_attrs(max_value, slope, threshold));
}

OpBody leaky_relu(OpReader& r) {
  const double slope = r.config.real("negative_slope", 0.2);
  return of(r, [=](OpWriter& w, const Operand& x) {
    if (slope >= 0) return w.unary("relu", x, relu_attrs({}, slope, 0));
    return w.select(above(w, x, 0), x, w.affine(x, slope, 0));
  });
}

OpBody elu(OpReader& r) {
  const double alpha = r.config.real("alpha", 1);
  return of(r, [=](OpWriter& w, const Operand& x) {
    if (alpha >= 0) return w.unary("elu", x, {{"alpha", alpha}});
    const Operand one = w.unary("elu", x, {{"alpha", 1.0}});
    return w.select(above(w, x, 0), one, w.affine(one, alpha, 0));
  });
}

Operand selu(OpWriter& w, const Operand& x) {
  constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
  return w.affine(w.unary("elu", x, {{"alpha", kAlpha}}), kScale, 0);
}

OpBody celu(OpReader& r) {
  const double alpha = r.config.real("alpha", 1);
  if (alpha == 0) r.reject("'alpha' must not be 0");
  return of(r, [=](OpWriter& w, const Operand& x) {
    const Operand negative = w.affine(w.binary("minimum", x, w.number(0)), 1 / alpha, 0);
    return w.add(w.binary("maximum", x, w.number(0)), w.affine(w.unary("expm1", negative), alpha, 0));
  });
}

OpBody glu(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w));
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return {in};
    const int64_t size = w.dims(in)[*at];
    if (size % 2 != 0) w.fail(fmt::format("dimension {} has {} elements, an odd number", *at, size));
    if (w.failed()) return {in};
    return {w.multiply(w.slice(in, *at, 0, size / 2), w.unary("sigmoid", w.slice(in, *at, size / 2, size / 2)))};
  };
}

OpBody soft_shrink(OpReader& r) {
  const double t = r.config.real("threshold", 0.5);
  return of(r, [=](OpWriter& w, const Operand& x) {
    const Operand low = w.select(below(w, x, -t), w.affine(x, 1, t), w.number(0));
    return w.select(above(w, x, t), w.affine(x, 1, -t), low);
  });
}

OpBody hard_shrink(OpReader& r) {
  const double t = r.config.real("threshold", 0.5);
  return of(r, [=](OpWriter& w, const Operand& x) { return w.select(above(w, w.unary("abs", x), t), x, w.number(0)); });
}

OpBody threshold(OpReader& r) {
  const double t = r.config.real("threshold", 0), value = r.config.real("default_value", 0);
  return of(r, [=](OpWriter& w, const Operand& x) { return w.select(above(w, x, t), x, w.number(value)); });
}

OpBody squareplus(OpReader& r) {
  const double b = r.config.real("b", 4);
  return of(r, [=](OpWriter& w, const Operand& x) {
    return w.affine(w.add(x, w.unary("sqrt", w.affine(w.unary("square", x), 1, b))), 0.5, 0);
  });
}

Operand sparse_plus(OpWriter& w, const Operand& x) {
  const Operand middle = w.affine(w.unary("square", w.affine(x, 1, 1)), 0.25, 0);
  const Operand upper = w.select(below(w, x, 1), middle, x);
  return w.select(w.binary("less_equal", x, w.number(-1)), w.number(0), upper);
}

Operand sparse_sigmoid(OpWriter& w, const Operand& x) {
  const Operand upper = w.select(w.binary("less_equal", w.number(1), x), w.number(1), w.affine(x, 0.5, 0.5));
  return w.select(w.binary("less_equal", x, w.number(-1)), w.number(0), upper);
}

Operand hard_tanh(OpWriter& w, const Operand& x) {
  return w.binary("maximum", w.binary("minimum", x, w.number(1)), w.number(-1));
}

Operand log_sigmoid(OpWriter& w, const Operand& x) {
  return w.affine(w.unary("softplus", w.affine(x, -1, 0)), -1, 0);
}

Operand mish(OpWriter& w, const Operand& x) {
  return w.multiply(x, w.unary("tanh", w.unary("softplus", x)));
}

OpBody sparsemax(OpReader& r) {
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  return of(r, [axis](OpWriter& w, const Operand& x) {
    const auto at = w.axis(axis, w.rank(x));
    if (!at) return x;
    const auto place = static_cast<int64_t>(*at);
    return OpWriter::value(along_axes(w.call(), x.id, {&place, 1}, *named_activation("sparsemax")));
  });
}

constexpr std::array kOperations = {
    OpClass{"Relu", [](OpReader& r) { return plain(r, "relu"); }},
    OpClass{"ReLU", relu_with_options},
    OpClass{"Relu6", [](OpReader& r) { return plain(r, "relu", relu_attrs(6.0, 0, 0)); }},
    OpClass{"LeakyRelu", leaky_relu},
    OpClass{"Sigmoid", [](OpReader& r) { return plain(r, "sigmoid"); }},
    OpClass{"HardSigmoid", [](OpReader& r) { return plain(r, "hard_sigmoid"); }},
    OpClass{"Silu", [](OpReader& r) { return plain(r, "silu"); }},
    OpClass{"HardSilu", [](OpReader& r) { return plain(r, "hard_silu"); }},
    OpClass{"Softplus", [](OpReader& r) { return plain(r, "softplus"); }},
    OpClass{"Softsign", [](OpReader& r) { return plain(r, "softsign"); }},
    OpClass{"Elu", elu},
    OpClass{"Selu", [](OpReader& r) { return of(r, selu); }},
    OpClass{"Celu", celu},
    OpClass{"Gelu",
            [](OpReader& r) {
              return plain(r, "gelu", {{"approximate", r.config.flag("approximate", true)}});
            }},
    OpClass{"Glu", glu},
    OpClass{"SoftShrink", soft_shrink},
    OpClass{"HardShrink", hard_shrink},
    OpClass{"TanhShrink",
            [](OpReader& r) {
              return of(r, [](OpWriter& w, const Operand& x) { return w.subtract(x, w.unary("tanh", x)); });
            }},
    OpClass{"HardTanh", [](OpReader& r) { return of(r, hard_tanh); }},
    OpClass{"Threshold", threshold},
    OpClass{"Squareplus", squareplus},
    OpClass{"SparsePlus", [](OpReader& r) { return of(r, sparse_plus); }},
    OpClass{"SparseSigmoid", [](OpReader& r) { return of(r, sparse_sigmoid); }},
    OpClass{"LogSigmoid", [](OpReader& r) { return of(r, log_sigmoid); }},
    OpClass{"Sparsemax", sparsemax},
    OpClass{"Mish", [](OpReader& r) { return of(r, mish); }},
};

}  // namespace

std::span<const OpClass> activation_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
