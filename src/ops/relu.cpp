// relu as Keras defines it, with slope, ceiling and threshold. relu_grad reads the output if the output suffices.
#include <limits>

#include "base/rounding.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// TensorFlow keeps the ceiling, and the slope of a plain leaky relu, in float32 for every dtype.
struct Relu {
  double slope, threshold, ceiling;
  bool capped;

  explicit Relu(const Attrs& attrs)
      : slope(attrs.real_or("negative_slope", 0)),
        threshold(attrs.real_or("threshold", 0)),
        ceiling(through_float32(attrs.real_or("max_value", std::numeric_limits<double>::infinity()))),
        capped(attrs.has("max_value")) {
    if (!capped && threshold == 0) slope = through_float32(slope);
  }

  // Returns whether the input's sign and its side of the ceiling can be derived from the output.
  bool output_tells() const { return threshold == 0 && slope >= 0 && ceiling > 0; }

  double value(double x) const {
    if (x != x) return x;
    if (x <= threshold) return slope == 0 ? 0.0 : slope * (x - threshold);
    return capped ? std::min(std::max(x, 0.0), ceiling) : x;
  }
  // At the kinks, the slope is that of TensorFlow's Relu6Grad and LeakyReluGrad.
  double slope_at(double x) const {
    if (!(x > threshold)) return slope;
    return capped && (x < 0 || x >= ceiling) ? 0 : 1;
  }
};

bool check_attrs(InferCheck& check) {
  return check.optional_real("negative_slope") && check.optional_real("threshold") && check.optional_real("max_value");
}

OpDef relu_op() {
  OpDef op;
  op.name = "relu";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.error_units = 2;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("relu", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check_attrs(check)) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    const bool from_output = Relu(g.node.attrs).output_tells();
    Attrs attrs = g.node.attrs;
    attrs.set("from", from_output ? "output" : "input");
    return {g.b.add1("relu_grad", {g.grad(), from_output ? g.out(0) : g.in(0)}, attrs)};
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [relu = Relu(call.attrs), x = in(call, 0)](int64_t i) { return relu.value(x[i]); });
  };
  op.cases = {
      {"plain", {f32({2, 3, 4, 5})}, {}, {"distinct"}, {0}},
      {"odd", {f32({1, 17})}, {}, {"distinct"}, {0}},
      {"relu6", {f32({2, 33})}, {{"max_value", 6.0}}, {"distinct"}, {0}},
      {"low_ceiling", {f32({2, 33})}, {{"max_value", 0.75}}, {"distinct"}, {0}},
      {"leaky", {f32({3, 11})}, {{"negative_slope", 0.3}}, {"distinct"}, {0}},
      {"threshold", {f32({3, 11})}, {{"threshold", 0.55}}, {"distinct"}, {0}},
      {"negative_threshold", {f32({3, 11})}, {{"threshold", -0.55}, {"max_value", 0.71}}, {"distinct"}, {0}},
      {"negative_slope", {f32({3, 11})}, {{"negative_slope", -0.2}}, {"distinct"}, {0}},
      {"all", {f32({3, 11})}, {{"threshold", 0.21}, {"max_value", 0.83}, {"negative_slope", 0.1}}, {"distinct"}, {0}}};
  return op;
}

OpDef relu_grad_op() {
  OpDef op;
  op.name = "relu_grad";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}, {1, 0}};
  op.error_units = 2;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("relu_grad", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1) || !check_attrs(check) ||
        !check.has("from", "text"))
      return check.failed();
    const std::string& from = attrs.text("from");
    check.require(from == "input" || (from == "output" && Relu(attrs).output_tells()),
                  fmt::format("from=\"{}\" must be \"input\", or \"output\" with threshold 0, slope >= 0 and a "
                              "max_value above 0",
                              from));
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    // If the gradient reads the output, that lies on the same side of 0 and of the ceiling as the input.
    map_elements(out(call), call.outputs[0].elements(),
                 [relu = Relu(call.attrs), dy = in(call, 0), v = in(call, 1)](int64_t i) {
                   return dy[i] * relu.slope_at(v[i]);
                 });
  };
  const std::vector<std::string> fill = {"normal", "distinct"};
  op.cases = {{"output", {f32({2, 3, 4, 5}), f32({2, 3, 4, 5})}, {{"from", "output"}}, fill, {}},
              {"input", {f32({1, 17}), f32({1, 17})}, {{"from", "input"}}, fill, {}},
              {"relu6", {f32({3, 7}), f32({3, 7})}, {{"from", "output"}, {"max_value", 6.0}}, fill, {}},
              {"leaky", {f32({3, 7}), f32({3, 7})}, {{"from", "output"}, {"negative_slope", 0.2}}, fill, {}},
              {"threshold", {f32({3, 7}), f32({3, 7})}, {{"from", "input"}, {"threshold", 0.52}}, fill, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> relu_ops() {
  return {relu_op(), relu_grad_op()};
}

}  // namespace plimsoll::engine
