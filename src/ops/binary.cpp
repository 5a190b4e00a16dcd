// Functions of two numbers, comparisons, and select. Truth values are 0 and 1 of the tensors' dtype. Gradients are
// TensorFlow's: on a tie, maximum and minimum pass the gradient to the first input; comparisons have none.
#include <cmath>

#include "ops/build.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// Python's and TensorFlow's: the result has the divisor's sign.
double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

ValueId affine(const GradientCall& g, ValueId x, double scale, double offset) {
  return g.b.add1("affine", {x}, {{"scale", scale}, {"offset", offset}});
}
ValueId apply(const GradientCall& g, const std::string& op, ValueId a, ValueId b) {
  return g.b.add1(op, {a, b});
}
// dy where the condition holds, else 0.
ValueId where(const GradientCall& g, ValueId condition) {
  return g.b.add1("select", {condition, g.grad(), constant_like(g.b, g.grad(), 0)});
}
ValueId elsewhere(const GradientCall& g, ValueId condition) {
  return g.b.add1("select", {condition, constant_like(g.b, g.grad(), 0), g.grad()});
}

using Rule = std::vector<ValueId> (*)(const GradientCall& g);

std::vector<ValueId> subtract_gradient(const GradientCall& g) {
  return {g.wants(0) ? g.grad() : kNone, g.wants(1) ? affine(g, g.grad(), -1, 0) : kNone};
}

std::vector<ValueId> divide_gradient(const GradientCall& g) {
  const ValueId da = apply(g, "divide", g.grad(), g.in(1));
  return {g.wants(0) ? da : kNone, g.wants(1) ? affine(g, apply(g, "multiply", da, g.out(0)), -1, 0) : kNone};
}

std::vector<ValueId> extreme_gradient(const GradientCall& g, ValueId first_wins) {
  return {g.wants(0) ? where(g, first_wins) : kNone, g.wants(1) ? elsewhere(g, first_wins) : kNone};
}
std::vector<ValueId> maximum_gradient(const GradientCall& g) {
  return extreme_gradient(g, apply(g, "less_equal", g.in(1), g.in(0)));
}
std::vector<ValueId> minimum_gradient(const GradientCall& g) {
  return extreme_gradient(g, apply(g, "less_equal", g.in(0), g.in(1)));
}

// TensorFlow takes log(a) as 0 where a is not positive.
std::vector<ValueId> power_gradient(const GradientCall& g) {
  ValueId da = kNone, db = kNone;
  if (g.wants(0)) {
    const ValueId lower = apply(g, "power", g.in(0), affine(g, g.in(1), 1, -1));
    da = apply(g, "multiply", g.grad(), apply(g, "multiply", g.in(1), lower));
  }
  if (g.wants(1)) {
    const ValueId positive = apply(g, "less", constant_like(g.b, g.in(0), 0), g.in(0));
    const ValueId base = g.b.add1("select", {positive, g.in(0), constant_like(g.b, g.in(0), 1)});
    db = apply(g, "multiply", g.grad(), apply(g, "multiply", g.out(0), g.b.add1("log", {base})));
  }
  return {da, db};
}

// Inputs y and x; the angle's slopes are x / (x^2 + y^2) and -y / (x^2 + y^2).
std::vector<ValueId> atan2_gradient(const GradientCall& g) {
  const ValueId squares = apply(g, "add", g.b.add1("square", {g.in(0)}), g.b.add1("square", {g.in(1)}));
  const ValueId part = apply(g, "divide", g.grad(), squares);
  return {g.wants(0) ? apply(g, "multiply", part, g.in(1)) : kNone,
          g.wants(1) ? affine(g, apply(g, "multiply", part, g.in(0)), -1, 0) : kNone};
}

std::vector<ValueId> modulo_gradient(const GradientCall& g) {
  ValueId db = kNone;
  if (g.wants(1)) {
    const ValueId quotient = g.b.add1("floor", {apply(g, "divide", g.in(0), g.in(1))});
    db = affine(g, apply(g, "multiply", g.grad(), quotient), -1, 0);
  }
  return {g.wants(0) ? g.grad() : kNone, db};
}

struct Function {
  std::string name;
  double (*value)(double a, double b);
  Rule gradient;  // null: none
  std::vector<std::pair<std::string, std::string>> fills;
  double error_units = 2;
};

OpDef make(const Function& f) {
  OpDef op;
  op.name = f.name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}, {1, 0}};
  op.error_units = f.error_units;
  op.infer = [name = f.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1)) return check.failed();
    return check.outputs({in[0]});
  };
  if (f.gradient) op.gradient = f.gradient;
  op.reference = [value = f.value](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [&, a = in(call, 0), b = in(call, 1)](int64_t i) { return value(a[i], b[i]); });
  };
  for (const auto& [a, b] : f.fills) {
    // Equal numbers have no derivative; drawn integers are there to be equal.
    const bool smooth = f.gradient && a.substr(0, 8) != "integers";
    const std::vector<size_t> differentiate = smooth ? std::vector<size_t>{0, 1} : std::vector<size_t>{};
    const std::string suffix = a + "_" + b.substr(0, b.find(':'));
    const std::string label = suffix.substr(0, suffix.find(':'));
    op.cases.push_back({label, {f32({2, 3, 4, 5}), f32({2, 3, 4, 5})}, {}, {a, b}, differentiate});
    op.cases.push_back({label + "_odd", {f32({1, 17}), f32({1, 17})}, {}, {a, b}, differentiate});
  }
  return op;
}

OpDef select_op() {
  OpDef op;
  op.name = "select";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}, {1, 0}, {2, 0}};
  op.error_units = 0;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("select", in, attrs);
    if (!check.inputs(3) || !check.all_floats() || !check.same_shape(0, 1) || !check.same_shape(0, 2))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    return {kNone, g.wants(1) ? where(g, g.in(0)) : kNone, g.wants(2) ? elsewhere(g, g.in(0)) : kNone};
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [c = in(call, 0), a = in(call, 1), b = in(call, 2)](int64_t i) { return c[i] != 0 ? a[i] : b[i]; });
  };
  const auto three = [](const TensorType& type) { return std::vector<TensorType>{type, type, type}; };
  op.cases = {{"image", three(f32({2, 3, 4, 5})), {}, {"labels:2", "normal", "normal"}, {1, 2}},
              {"odd", three(f32({1, 17})), {}, {"labels:2", "normal", "normal"}, {1, 2}},
              {"scalar", three(f32({})), {}, {"zero", "normal", "normal"}, {1, 2}}};
  return op;
}

}  // namespace

std::vector<OpDef> binary_ops() {
  const std::vector<std::pair<std::string, std::string>> normal = {{"normal", "normal"}},
                                                         compared = {{"normal", "normal"},
                                                                     {"integers:2", "integers:2"}};
  const std::vector<Function> functions = {
      {"subtract", [](double a, double b) { return a - b; }, subtract_gradient, normal},
      {"divide", [](double a, double b) { return a / b; }, divide_gradient, {{"normal", "positive"}}},
      // A NaN wins, as in numpy.
      {"maximum", [](double a, double b) { return a >= b || a != a ? a : b; }, maximum_gradient, compared, 0},
      {"minimum", [](double a, double b) { return a <= b || a != a ? a : b; }, minimum_gradient, compared, 0},
      {"power", [](double a, double b) { return std::pow(a, b); }, power_gradient, {{"positive", "normal"}}, 16},
      {"atan2", [](double a, double b) { return std::atan2(a, b); }, atan2_gradient, normal, 8},
      // The quotients stay between two integers, where the remainder has a slope.
      {"modulo",
       floor_mod,
       modulo_gradient,
       {{"positive", "value:2.5"}, {"value:7", "value:-2.5"}, {"integers:5", "value:-3"}},
       4},
      {"less", [](double a, double b) { return a < b ? 1.0 : 0.0; }, nullptr, compared, 0},
      {"less_equal", [](double a, double b) { return a <= b ? 1.0 : 0.0; }, nullptr, compared, 0},
      {"equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }, nullptr, compared, 0}};
  std::vector<OpDef> ops = {select_op()};
  for (const Function& f : functions) ops.push_back(make(f));
  return ops;
}

}  // namespace plimsoll::engine
