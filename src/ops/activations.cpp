// sigmoid, tanh, elu and hard_sigmoid, whose gradients read the output; gelu, silu and hard_silu, whose gradients read
// the input.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// gelu's constants. TensorFlow rounds two of them to float32 before it casts to the tensor's dtype.
constexpr double kTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr auto kCubic = static_cast<double>(0.044715f);
constexpr auto kSqrtHalf = static_cast<double>(0.7071067811865476f);

double gelu(double x, bool approximate) {
  if (approximate) return 0.5 * x * (1 + std::tanh(kTanhScale * (x + kCubic * x * x * x)));
  return 0.5 * x * std::erfc(-x * kSqrtHalf);
}

double gelu_slope(double x, bool approximate) {
  if (approximate) {
    const double t = std::tanh(kTanhScale * (x + kCubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kTanhScale * (1 + 3 * kCubic * x * x);
  }
  const double z = x * kSqrtHalf;
  return 0.5 * std::erfc(-z) + x * std::exp(-z * z) * std::numbers::inv_sqrtpi * kSqrtHalf;
}

double silu_slope(double x) {
  const double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

double hard_sigmoid(double x) {
  return std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
}

double hard_silu_slope(double x) {
  return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
}

struct Activation {
  std::string name;
  double (*value)(double x, const Attrs& attrs);
  double (*slope)(double v, const Attrs& attrs);  // the slope as a function of the output, or of the input
  bool from_output;
  Attrs attrs;  // attributes of the test cases
};

bool check_attrs(InferCheck& check, const std::string& name, const Attrs& attrs) {
  if (name == "elu")  // with a negative alpha the input's sign could not be told from the output
    return check.real("alpha") &&
           check.require(attrs.real("alpha") >= 0, fmt::format("alpha={} must not be negative", attrs.real("alpha")));
  return name != "gelu" || check.optional_flag("approximate");
}

OpDef elementwise(const std::string& name) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.error_units = 8;
  return op;
}

OpDef forward_op(const Activation& a) {
  OpDef op = elementwise(a.name);
  op.in_place = {{0, 0}};
  op.infer = [name = a.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check_attrs(check, name, attrs)) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [a](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1(a.name + "_grad", {g.grad(), a.from_output ? g.out(0) : g.in(0)}, g.node.attrs)};
  };
  op.reference = [value = a.value](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(), [&](int64_t i) { return value(in(call, 0)[i], call.attrs); });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5})}, a.attrs, {"distinct"}, {0}},
              {"odd", {f32({1, 17})}, a.attrs, {"normal"}, {0}},
              {"large", {f32({3})}, a.attrs, {"value:-100"}, {}}};
  return op;
}

OpDef grad_op(const Activation& a) {
  OpDef op = elementwise(a.name + "_grad");
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [name = a.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name + "_grad", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1) || !check_attrs(check, name, attrs))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [slope = a.slope](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [&](int64_t i) { return in(call, 0)[i] * slope(in(call, 1)[i], call.attrs); });
  };
  const std::string v = a.from_output ? "uniform" : "normal";
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({2, 3, 4, 5})}, a.attrs, {"normal", v}, {}},
              {"odd", {f32({1, 17}), f32({1, 17})}, a.attrs, {"normal", v}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> activation_ops() {
  const std::vector<Activation> activations = {
      {"sigmoid",
       [](double x, const Attrs&) { return sigmoid(x); },
       [](double y, const Attrs&) { return y * (1 - y); },
       true,
       {}},
      {"tanh",
       [](double x, const Attrs&) { return std::tanh(x); },
       [](double y, const Attrs&) { return 1 - y * y; },
       true,
       {}},
      {"elu",
       [](double x, const Attrs& attrs) { return x > 0 ? x : attrs.real("alpha") * std::expm1(x); },
       [](double y, const Attrs& attrs) { return y > 0 ? 1 : y + attrs.real("alpha"); },
       true,
       {{"alpha", 0.7}}},
      {"gelu",
       [](double x, const Attrs& attrs) { return gelu(x, attrs.flag("approximate")); },
       [](double x, const Attrs& attrs) { return gelu_slope(x, attrs.flag("approximate")); },
       false,
       {}},
      {"silu",
       [](double x, const Attrs&) { return x * sigmoid(x); },
       [](double x, const Attrs&) { return silu_slope(x); },
       false,
       {}},
      {"hard_sigmoid",
       [](double x, const Attrs&) { return hard_sigmoid(x); },
       [](double y, const Attrs&) { return y > 0 && y < 1 ? 1.0 / 6 : 0; },
       true,
       {}},
      {"hard_silu",
       [](double x, const Attrs&) { return x * hard_sigmoid(x); },
       [](double x, const Attrs&) { return hard_silu_slope(x); },
       false,
       {}}};
  std::vector<OpDef> ops;
  for (const Activation& a : activations) {
    ops.push_back(forward_op(a));
    ops.push_back(grad_op(a));
    if (a.name != "gelu") continue;
    const Attrs approximate = {{"approximate", true}};
    ops[ops.size() - 2].cases.push_back({"tanh", {f32({1, 33})}, approximate, {"distinct"}, {0}});
    ops.back().cases.push_back({"tanh", {f32({33}), f32({33})}, approximate, {"normal", "normal"}, {}});
  }
  return ops;
}

}  // namespace plimsoll::engine
