// Element-wise operations of one or two tensors without options: one row per class. What stands in a row is Keras's
// formula on TensorFlow (keras/src/backend/tensorflow/numpy.py), so that gradients agree too.
#include <array>
#include <cmath>
#include <numbers>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

using List = std::span<const Operand>;

enum class Rule {
  kNumbers,   // floats stay floats, integers stay integers
  kFloats,    // integers become floats
  kCompares,  // the result is a truth value
  kLogic,     // operands and result are truth values
};

struct Row {
  std::string_view name;
  size_t operands;
  Rule rule;
  Operand (*write)(OpWriter&, List);
};

// Rows whose operation is one op of the graph.
template <size_t kLength>
struct Text {
  constexpr Text(const char (&text)[kLength]) { std::copy_n(text, kLength, value); }  // NOLINT: implicit, for literals
  char value[kLength];
};
template <Text kOp>
Operand unary(OpWriter& w, List x) {
  return w.unary(kOp.value, x[0]);
}
template <Text kOp>
Operand binary(OpWriter& w, List x) {
  return w.binary(kOp.value, x[0], x[1]);
}
template <Text kOp>
Operand swapped(OpWriter& w, List x) {
  return w.binary(kOp.value, x[1], x[0]);
}

Operand identity(OpWriter&, List x) {
  return x[0];
}

// log(2^a + 2^b) and log(e^a + e^b), from the larger one.
Operand log_add_exp(OpWriter& w, const Operand& a, const Operand& b) {
  const Operand distance = w.unary("abs", w.subtract(a, b));
  return w.add(w.binary("maximum", a, b), w.unary("log1p", w.unary("exp", w.affine(distance, -1, 0))));
}

Operand hypot(OpWriter& w, List x) {
  const Operand a = w.unary("abs", x[0]), b = w.unary("abs", x[1]);
  const Operand large = w.binary("maximum", a, b), small = w.binary("minimum", a, b);
  const Operand zero = w.binary("equal", large, w.number(0));
  const Operand ratio = w.select(zero, w.number(0), w.divide(small, w.select(zero, w.number(1), large)));
  return w.multiply(large, w.unary("sqrt", w.affine(w.unary("square", ratio), 1, 1)));
}

// 0 where the divisor is 0. The divisor is replaced there, so that the gradient stays finite.
Operand divide_no_nan(OpWriter& w, List x) {
  const Operand zero = w.binary("equal", x[1], w.number(0));
  return w.select(zero, w.number(0), w.divide(x[0], w.select(zero, w.number(1), x[1])));
}

Operand heaviside(OpWriter& w, List x) {
  const Operand above = w.binary("less", w.number(0), x[0]), below = w.binary("less", x[0], w.number(0));
  return w.select(below, w.number(0), w.select(above, w.number(1), x[1]));
}

Operand sinc(OpWriter& w, List x) {
  const Operand zero = w.binary("equal", x[0], w.number(0));
  const Operand angle = w.affine(w.select(zero, w.number(1), x[0]), std::numbers::pi, 0);
  return w.select(zero, w.number(1), w.divide(w.unary("sin", angle), angle));
}

Operand fmod(OpWriter& w, List x) {
  const Operand rest = w.binary("modulo", w.unary("abs", x[0]), w.unary("abs", x[1]));
  return w.multiply(w.unary("sign", x[0]), rest);
}

Operand cbrt(OpWriter& w, List x) {
  return w.multiply(w.unary("sign", x[0]), w.power(w.unary("abs", x[0]), w.number(1.0 / 3)));
}

Operand is_finite(OpWriter& w, List x) {
  return w.invert(w.binary("maximum", w.unary("is_nan", x[0]), w.unary("is_inf", x[0])));
}

Operand floor_divide(OpWriter& w, List x) {
  return w.unary("floor", w.divide(x[0], x[1]));
}

// The other operand where one is NaN.
Operand extreme(OpWriter& w, List x, const char* op) {
  const Operand nan1 = w.unary("is_nan", x[0]), nan2 = w.unary("is_nan", x[1]);
  const Operand only1 = w.multiply(nan1, w.invert(nan2)), only2 = w.multiply(nan2, w.invert(nan1));
  return w.select(only2, x[0], w.select(only1, x[1], w.binary(op, x[0], x[1])));
}

Operand not_equal(OpWriter& w, List x) {
  return w.invert(w.binary("equal", x[0], x[1]));
}

constexpr Row kRows[] = {
    {"Add", 2, Rule::kNumbers, [](OpWriter& w, List x) { return w.add(x[0], x[1]); }},
    {"Subtract", 2, Rule::kNumbers, [](OpWriter& w, List x) { return w.subtract(x[0], x[1]); }},
    {"Multiply", 2, Rule::kNumbers, [](OpWriter& w, List x) { return w.multiply(x[0], x[1]); }},
    {"Divide", 2, Rule::kFloats, [](OpWriter& w, List x) { return w.divide(x[0], x[1]); }},
    {"TrueDivide", 2, Rule::kFloats, [](OpWriter& w, List x) { return w.divide(x[0], x[1]); }},
    {"DivideNoNan", 2, Rule::kFloats, divide_no_nan},
    {"FloorDivide", 2, Rule::kNumbers, floor_divide},
    {"Mod", 2, Rule::kNumbers, binary<"modulo">},
    {"Fmod", 2, Rule::kNumbers, fmod},
    {"Power", 2, Rule::kNumbers, [](OpWriter& w, List x) { return w.power(x[0], x[1]); }},
    {"Maximum", 2, Rule::kNumbers, binary<"maximum">},
    {"Minimum", 2, Rule::kNumbers, binary<"minimum">},
    {"Fmax", 2, Rule::kNumbers, [](OpWriter& w, List x) { return extreme(w, x, "maximum"); }},
    {"Fmin", 2, Rule::kNumbers, [](OpWriter& w, List x) { return extreme(w, x, "minimum"); }},
    {"Arctan2", 2, Rule::kFloats, binary<"atan2">},
    {"Hypot", 2, Rule::kFloats, hypot},
    {"Heaviside", 2, Rule::kFloats, heaviside},
    {"Logaddexp", 2, Rule::kFloats, [](OpWriter& w, List x) { return log_add_exp(w, x[0], x[1]); }},
    {"Logaddexp2", 2, Rule::kFloats,
     [](OpWriter& w, List x) {
       const double ln = std::numbers::ln2;
       return w.affine(log_add_exp(w, w.affine(x[0], ln, 0), w.affine(x[1], ln, 0)), 1 / ln, 0);
     }},
    {"Ldexp", 2, Rule::kFloats,
     [](OpWriter& w, List x) { return w.multiply(x[0], w.binary("power", w.number(2), x[1])); }},
    {"Negative", 1, Rule::kNumbers, [](OpWriter& w, List x) { return w.affine(x[0], -1, 0); }},
    {"Absolute", 1, Rule::kNumbers, unary<"abs">},
    {"Abs", 1, Rule::kNumbers, unary<"abs">},
    {"Fabs", 1, Rule::kFloats, unary<"abs">},
    {"Sign", 1, Rule::kNumbers, unary<"sign">},
    {"Square", 1, Rule::kNumbers, unary<"square">},
    {"Sqrt", 1, Rule::kFloats, unary<"sqrt">},
    {"Rsqrt", 1, Rule::kFloats, unary<"rsqrt">},
    {"Reciprocal", 1, Rule::kFloats, unary<"reciprocal">},
    {"Cbrt", 1, Rule::kFloats, cbrt},
    {"Exp", 1, Rule::kFloats, unary<"exp">},
    {"Exp2", 1, Rule::kFloats,
     [](OpWriter& w, List x) { return w.unary("exp", w.affine(x[0], std::numbers::ln2, 0)); }},
    {"Expm1", 1, Rule::kFloats, unary<"expm1">},
    {"Log", 1, Rule::kFloats, unary<"log">},
    {"Log1p", 1, Rule::kFloats, unary<"log1p">},
    {"Log2", 1, Rule::kFloats,
     [](OpWriter& w, List x) { return w.affine(w.unary("log", x[0]), std::numbers::log2e, 0); }},
    {"Log10", 1, Rule::kFloats,
     [](OpWriter& w, List x) { return w.affine(w.unary("log", x[0]), std::numbers::log10e, 0); }},
    {"Sin", 1, Rule::kFloats, unary<"sin">},
    {"Cos", 1, Rule::kFloats, unary<"cos">},
    {"Tan", 1, Rule::kFloats, unary<"tan">},
    {"Arcsin", 1, Rule::kFloats, unary<"asin">},
    {"Arccos", 1, Rule::kFloats, unary<"acos">},
    {"Arctan", 1, Rule::kFloats, unary<"atan">},
    {"Sinh", 1, Rule::kFloats, unary<"sinh">},
    {"Cosh", 1, Rule::kFloats, unary<"cosh">},
    {"Tanh", 1, Rule::kFloats, unary<"tanh">},
    {"Arcsinh", 1, Rule::kFloats, unary<"asinh">},
    {"Arccosh", 1, Rule::kFloats, unary<"acosh">},
    {"Arctanh", 1, Rule::kFloats, unary<"atanh">},
    {"Sinc", 1, Rule::kFloats, sinc},
    {"Deg2rad", 1, Rule::kFloats, [](OpWriter& w, List x) { return w.affine(x[0], std::numbers::pi / 180, 0); }},
    {"Rad2deg", 1, Rule::kFloats, [](OpWriter& w, List x) { return w.affine(x[0], 180 / std::numbers::pi, 0); }},
    {"Floor", 1, Rule::kFloats, unary<"floor">},
    {"Ceil", 1, Rule::kFloats, unary<"ceil">},
    {"Trunc", 1, Rule::kFloats, unary<"trunc">},
    {"Erf", 1, Rule::kFloats, unary<"erf">},
    {"Erfc", 1, Rule::kFloats, [](OpWriter& w, List x) { return w.affine(w.unary("erf", x[0]), -1, 1); }},
    {"Erfinv", 1, Rule::kFloats, unary<"erfinv">},
    {"Copy", 1, Rule::kNumbers, identity},
    {"Conj", 1, Rule::kNumbers, identity},
    {"Conjugate", 1, Rule::kNumbers, identity},
    {"Real", 1, Rule::kNumbers, identity},
    {"Less", 2, Rule::kCompares, binary<"less">},
    {"LessEqual", 2, Rule::kCompares, binary<"less_equal">},
    {"Greater", 2, Rule::kCompares, swapped<"less">},
    {"GreaterEqual", 2, Rule::kCompares, swapped<"less_equal">},
    {"Equal", 2, Rule::kCompares, binary<"equal">},
    {"NotEqual", 2, Rule::kCompares, not_equal},
    {"Signbit", 1, Rule::kCompares, [](OpWriter& w, List x) { return w.binary("less", x[0], w.number(0)); }},
    {"Isnan", 1, Rule::kCompares, unary<"is_nan">},
    {"Isinf", 1, Rule::kCompares, unary<"is_inf">},
    {"Isfinite", 1, Rule::kCompares, is_finite},
    {"Isposinf", 1, Rule::kCompares,
     [](OpWriter& w, List x) { return w.multiply(w.unary("is_inf", x[0]), w.binary("less", w.number(0), x[0])); }},
    {"Isneginf", 1, Rule::kCompares,
     [](OpWriter& w, List x) { return w.multiply(w.unary("is_inf", x[0]), w.binary("less", x[0], w.number(0))); }},
    {"LogicalAnd", 2, Rule::kLogic, [](OpWriter& w, List x) { return w.multiply(x[0], x[1]); }},
    {"LogicalOr", 2, Rule::kLogic, binary<"maximum">},
    {"LogicalXor", 2, Rule::kLogic, not_equal},
    {"LogicalNot", 1, Rule::kLogic, [](OpWriter& w, List x) { return w.invert(x[0]); }},
};

Operand write(const Row& row, OpWriter& w, Operands x) {
  const TensorKind kind = w.joint_kind(x);
  if (row.rule == Rule::kNumbers && kind == TensorKind::kTruth && row.write != identity) {
    w.refuse("arithmetic on truth values: cast them to a number first");
    return x[0];
  }
  if (row.write == identity) return x[0];
  if (row.rule == Rule::kLogic)
    for (Operand& one : x) one = w.truths(one);
  Operand made = row.write(w, w.joint_floats(x));
  if (w.failed()) return made;
  // A function of a constant and a tensor may return the constant's kind, so the kind is set here.
  made.kind = TensorKind::kFloat;
  if (row.rule == Rule::kCompares || row.rule == Rule::kLogic) made.kind = TensorKind::kTruth;
  return row.rule == Rule::kNumbers && kind == TensorKind::kInteger ? w.integers(made) : made;
}

}  // namespace

std::function<OpBody(OpReader&)> find_elementwise(std::string_view class_name) {
  for (const Row& row : kRows) {
    if (row.name != class_name) continue;
    return [&row](OpReader& r) -> OpBody {
      std::vector<OpArgument> list;
      if (row.operands == 1)
        list.push_back(r.operand("x", 0));
      else
        for (const char* name : {"x1", "x2"}) list.push_back(r.operand(name, list.size()));
      return [&row, list](OpWriter& w) -> Operands {
        Operands x;
        for (const OpArgument& one : list) x.push_back(one.get(w));
        return {write(row, w, std::move(x))};
      };
    };
  }
  return nullptr;
}

}  // namespace plimsoll::engine
