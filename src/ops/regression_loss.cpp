// squared_error and absolute_error, averaged over the last axis.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

using Function = double (*)(double difference);

OpDef forward_op(const std::string& name, Function value) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(2) || !check.mixed_floats() || !check.same_shape(0, 1) ||
        !check.require(in[0].shape.rank() >= 1, "needs an axis"))
      return check.failed();
    return check.outputs({{wide(in[0].dtype), Shape{rows_of(in[0].shape)}}});
  };
  op.gradient = [name](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    return {g.b.add1(name + "_grad", {g.grad(), g.in(0), g.in(1)}), kNone};
  };
  op.reference = [value](const ReferenceCall& call) {
    const int64_t k = channels_of(call.inputs[0].type.shape);
    for_each(call.outputs[0].elements(), k, [&](int64_t row) {
      double sum = 0;
      for (int64_t i = row * k; i < (row + 1) * k; ++i) sum += value(in(call, 0)[i] - in(call, 1)[i]);
      out(call)[row] = sum / static_cast<double>(k);
    });
  };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return 3.0 * static_cast<double>(in[0].shape.elements()); };
  op.error_units = 8;
  op.cases = {{"one", {f32({5, 1}), f32({5, 1})}, {}, {"distinct", "normal"}, {0}},
              {"row", {f32({3, 17}), f32({3, 17})}, {}, {"distinct", "normal"}, {0}},
              {"pixels", {f32({2, 3, 3, 3}), f32({2, 3, 3, 3})}, {}, {"distinct", "uniform"}, {0}}};
  return op;
}

OpDef grad_op(const std::string& name, Function slope) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCheap;
  op.in_place = {{1, 0}};
  op.infer = [name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(3) || !check.mixed_floats() || !check.same_shape(1, 2) ||
        !check.require(in[1].shape.rank() >= 1, "needs an axis"))
      return check.failed();
    const int64_t rows = rows_of(in[1].shape);
    check.require(in[0].shape == Shape{rows}, fmt::format("dloss must be [{}]", rows));
    return check.outputs({in[1]});
  };
  op.reference = [slope](const ReferenceCall& call) {
    const int64_t k = channels_of(call.inputs[1].type.shape);
    map_elements(out(call), call.outputs[0].elements(), [&](int64_t i) {
      return in(call, 0)[i / k] / static_cast<double>(k) * slope(in(call, 1)[i] - in(call, 2)[i]);
    });
  };
  op.cases = {{"one", {f32({5}), f32({5, 1}), f32({5, 1})}, {}, {"normal", "distinct", "normal"}, {}},
              {"row", {f32({3}), f32({3, 17}), f32({3, 17})}, {}, {"normal", "distinct", "normal"}, {}}};
  return op;
}

double square(double d) {
  return d * d;
}
double square_slope(double d) {
  return 2 * d;
}
double absolute(double d) {
  return std::fabs(d);
}
double absolute_slope(double d) {
  return d > 0 ? 1.0 : d < 0 ? -1.0 : 0.0;
}

}  // namespace

std::vector<OpDef> regression_loss_ops() {
  return {forward_op("squared_error", square), grad_op("squared_error_grad", square_slope),
          forward_op("absolute_error", absolute), grad_op("absolute_error_grad", absolute_slope)};
}

}  // namespace plimsoll::engine
