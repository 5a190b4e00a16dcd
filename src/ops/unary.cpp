// Functions of one number: exp, log, sqrt, trigonometry, rounding and their like. Gradients are written with other ops
// of this file and of binary.cpp, and read the output where that is enough. Ops without a gradient are constant almost
// everywhere: as in TensorFlow, nothing flows back through them.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/build.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A first guess by M. Giles's polynomials ("Approximating the erfinv function", 2011), then Newton's steps on erfc,
// which loses no digits near 1.
double erfinv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? x * kInfinity : std::nan("");
  if (a == 0) return x;
  const double w = -std::log1p(-a * a);
  double y = w < 5 ? a * (std::sqrt(std::numbers::pi) / 2 + 0.2 * w) : std::sqrt(w) - 0.5 * std::log(w) / std::sqrt(w);
  const double slope = 2 * std::numbers::inv_sqrtpi;
  for (int step = 0; step < 60; ++step) {
    // Halley's correction of Newton's step: the second derivative of erf is -2y times the first.
    const double newton = (std::erfc(y) - (1 - a)) / (slope * std::exp(-y * y));
    const double next = y + newton / (1 + y * newton);
    if (std::fabs(next - y) <= 1e-16 * y) break;
    y = next;
  }
  return std::copysign(y, x);
}

double softplus(double x) {
  return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0);
}

double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x;
}

// What a gradient rule multiplies or divides dy by; kNone: the op has no gradient.
struct Slope {
  ValueId value = kNone;
  bool divides = false;
};

ValueId affine(const GradientCall& g, ValueId x, double scale, double offset) {
  return g.b.add1("affine", {x}, {{"scale", scale}, {"offset", offset}});
}
ValueId apply(const GradientCall& g, const std::string& op, ValueId x) {
  return g.b.add1(op, {x});
}

struct Function {
  std::string name;
  double (*value)(double x);
  Slope (*slope)(const GradientCall& g);  // null: no gradient
  std::vector<std::string> fills;         // one test case each
  double error_units = 8;
};

OpDef make(const Function& f) {
  OpDef op;
  op.name = f.name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.error_units = f.error_units;
  op.infer = [name = f.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(1) || !check.all_floats()) return check.failed();
    return check.outputs({in[0]});
  };
  if (f.slope)
    op.gradient = [slope = f.slope](const GradientCall& g) -> std::vector<ValueId> {
      if (!g.wants(0)) return {kNone};
      const Slope s = slope(g);
      return {g.b.add1(s.divides ? "divide" : "multiply", {g.grad(), s.value})};
    };
  op.reference = [value = f.value](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(), [&](int64_t i) { return value(in(call, 0)[i]); });
  };
  const std::vector<size_t> differentiate = f.slope ? std::vector<size_t>{0} : std::vector<size_t>{};
  for (const std::string& fill : f.fills) {
    // At the ends of their domains inverse functions are too steep for finite differences: fewer, wider steps.
    const TensorType type = fill == "distinct" ? f32({1, 17}) : f32({2, 3, 4, 5});
    std::string label = fill.substr(0, fill.find(':'));
    if (fill.starts_with("value:")) label += fmt::format("_{}", op.cases.size());
    op.cases.push_back({label, {type}, {}, {fill}, fill == "unbounded" ? std::vector<size_t>{} : differentiate});
  }
  return op;
}

std::vector<Function> exponentials() {
  return {{"exp",
           [](double x) { return std::exp(x); },
           [](const GradientCall& g) -> Slope { return {g.out(0)}; },
           {"normal", "value:-100"}},
          {"expm1",
           [](double x) { return std::expm1(x); },
           [](const GradientCall& g) -> Slope { return {affine(g, g.out(0), 1, 1)}; },
           {"normal", "small"}},
          {"log",
           [](double x) { return std::log(x); },
           [](const GradientCall& g) -> Slope {
             return {g.in(0), true};
           },
           {"positive", "value:1000"}},
          {"log1p",
           [](double x) { return std::log1p(x); },
           [](const GradientCall& g) -> Slope {
             return {affine(g, g.in(0), 1, 1), true};
           },
           {"positive", "small"}},
          {"softplus",
           softplus,
           [](const GradientCall& g) -> Slope { return {apply(g, "sigmoid", g.in(0))}; },
           {"normal", "value:-100", "value:100"}},
          {"erf",
           [](double x) { return std::erf(x); },
           [](const GradientCall& g) -> Slope {
             const ValueId bell = apply(g, "exp", affine(g, apply(g, "square", g.in(0)), -1, 0));
             return {affine(g, bell, 2 * std::numbers::inv_sqrtpi, 0)};
           },
           {"normal", "small"}},
          {"erfinv",
           erfinv,
           [](const GradientCall& g) -> Slope {
             return {affine(g, apply(g, "exp", apply(g, "square", g.out(0))), std::sqrt(std::numbers::pi) / 2, 0)};
           },
           {"distinct", "small"}}};
}

std::vector<Function> powers() {
  return {{"square",
           [](double x) { return x * x; },
           [](const GradientCall& g) -> Slope { return {affine(g, g.in(0), 2, 0)}; },
           {"normal"},
           2},
          {"sqrt",
           [](double x) { return std::sqrt(x); },
           [](const GradientCall& g) -> Slope {
             return {affine(g, g.out(0), 2, 0), true};
           },
           {"positive"},
           2},
          {"rsqrt",
           [](double x) { return 1 / std::sqrt(x); },
           [](const GradientCall& g) -> Slope {
             const ValueId cube = g.b.add1("multiply", {apply(g, "square", g.out(0)), g.out(0)});
             return {affine(g, cube, -0.5, 0)};
           },
           {"positive"},
           4},
          {"reciprocal",
           [](double x) { return 1 / x; },
           [](const GradientCall& g) -> Slope { return {affine(g, apply(g, "square", g.out(0)), -1, 0)}; },
           {"positive"},
           2},
          {"softsign",
           [](double x) { return x / (1 + std::fabs(x)); },
           [](const GradientCall& g) -> Slope {
             return {apply(g, "square", affine(g, apply(g, "abs", g.in(0)), 1, 1)), true};
           },
           {"normal"},
           4}};
}

std::vector<Function> circular() {
  return {{"sin",
           [](double x) { return std::sin(x); },
           [](const GradientCall& g) -> Slope { return {apply(g, "cos", g.in(0))}; },
           {"normal", "value:100"}},
          {"cos",
           [](double x) { return std::cos(x); },
           [](const GradientCall& g) -> Slope { return {affine(g, apply(g, "sin", g.in(0)), -1, 0)}; },
           {"normal", "value:100"}},
          {"tan",
           [](double x) { return std::tan(x); },
           [](const GradientCall& g) -> Slope { return {affine(g, apply(g, "square", g.out(0)), 1, 1)}; },
           {"distinct", "value:100"}},
          {"asin",
           [](double x) { return std::asin(x); },
           [](const GradientCall& g) -> Slope {
             return {apply(g, "sqrt", affine(g, apply(g, "square", g.in(0)), -1, 1)), true};
           },
           {"distinct", "small"}},
          {"acos",
           [](double x) { return std::acos(x); },
           [](const GradientCall& g) -> Slope {
             const ValueId root = apply(g, "sqrt", affine(g, apply(g, "square", g.in(0)), -1, 1));
             return {affine(g, root, -1, 0), true};
           },
           {"distinct", "small"}},
          {"atan",
           [](double x) { return std::atan(x); },
           [](const GradientCall& g) -> Slope {
             return {affine(g, apply(g, "square", g.in(0)), 1, 1), true};
           },
           {"normal", "value:50"}}};
}

std::vector<Function> hyperbolic() {
  return {
      {"sinh",
       [](double x) { return std::sinh(x); },
       [](const GradientCall& g) -> Slope { return {apply(g, "cosh", g.in(0))}; },
       {"normal", "small"}},
      {"cosh",
       [](double x) { return std::cosh(x); },
       [](const GradientCall& g) -> Slope { return {apply(g, "sinh", g.in(0))}; },
       {"normal"}},
      {"asinh",
       [](double x) { return std::asinh(x); },
       [](const GradientCall& g) -> Slope { return {apply(g, "rsqrt", affine(g, apply(g, "square", g.in(0)), 1, 1))}; },
       {"normal", "value:-40"}},
      {"acosh",
       [](double x) { return std::acosh(x); },
       [](const GradientCall& g) -> Slope {
         return {apply(g, "rsqrt", affine(g, apply(g, "square", g.in(0)), 1, -1))};
       },
       {"value:1.7", "value:40"}},
      {"atanh",
       [](double x) { return std::atanh(x); },
       [](const GradientCall& g) -> Slope {
         return {affine(g, apply(g, "square", g.in(0)), -1, 1), true};
       },
       {"distinct", "small"}}};
}

std::vector<Function> steps() {
  return {{"abs",
           [](double x) { return std::fabs(x); },
           [](const GradientCall& g) -> Slope { return {apply(g, "sign", g.in(0))}; },
           {"distinct", "normal"},
           0},
          // The value itself; nothing flows back.
          {"stop_gradient", [](double x) { return x; }, nullptr, {"normal"}, 0},
          {"sign", sign, nullptr, {"normal", "integers:2"}, 0},
          {"floor", [](double x) { return std::floor(x); }, nullptr, {"normal", "integers:2", "value:2.5"}, 0},
          {"ceil", [](double x) { return std::ceil(x); }, nullptr, {"normal", "integers:2", "value:2.5"}, 0},
          {"round", [](double x) { return std::nearbyint(x); }, nullptr, {"normal", "value:2.5", "value:-3.5"}, 0},
          {"trunc", [](double x) { return std::trunc(x); }, nullptr, {"normal", "value:-2.5"}, 0},
          {"is_nan", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }, nullptr, {"unbounded"}, 0},
          {"is_inf", [](double x) { return std::isinf(x) ? 1.0 : 0.0; }, nullptr, {"unbounded"}, 0}};
}

// full_like: `value` everywhere. Unlike `fill` it can be part of a fused chain, where it costs no memory.
OpDef full_like_op() {
  OpDef op;
  op.name = "full_like";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.error_units = 1;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("full_like", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check.real("value")) return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(), [v = call.attrs.real("value")](int64_t) { return v; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5})}, {{"value", 0.3}}, {"unbounded"}, {}},
              {"scalar", {f32({})}, {{"value", -2.0}}, {"normal"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> unary_ops() {
  std::vector<OpDef> ops = {full_like_op()};
  for (const auto& family : {exponentials(), powers(), circular(), hyperbolic(), steps()})
    for (const Function& f : family) ops.push_back(make(f));
  return ops;
}

}  // namespace plimsoll::engine
