// Dynamic loss scaling without branches, as in Keras's LossScaleOptimizer. The loss is multiplied by a scale, and the
// gradients are divided by it (unscale). Elements that are not finite are counted. If there are any, all weights and
// moments keep their values (keep_if) and the scale is halved (loss_scale). Skipped updates are counted, so that Adam's
// bias correction (applied_updates) and schedules (scheduled_rate) can ignore them.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

OpDef unscale_op() {
  OpDef op;
  op.name = "unscale";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("unscale", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.scalar(1)) return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [g = in(call, 0), scale = *in(call, 1)](int64_t i) { return g[i] / scale; });
  };
  op.error_units = 1;
  op.cases = {{"kernel", {f32({3, 3, 5, 17}), f32({})}, {}, {"normal", "value:32768"}, {}},
              {"third", {f32({17}), f32({})}, {}, {"normal", "value:3"}, {}}};
  return op;
}

// Inputs: new, old, bad. Returns old if bad is not zero, else new.
OpDef keep_if_op() {
  OpDef op;
  op.name = "keep_if";
  op.kind = OpKind::kElementwise;
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("keep_if", in, attrs);
    if (!check.inputs(3) || !check.all_floats() || !check.same_shape(0, 1) || !check.scalar(2)) return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [=, fresh = in(call, 0), old = in(call, 1), bad = *in(call, 2)](int64_t i) {
                   return bad == 0 ? fresh[i] : old[i];
                 });
  };
  op.error_units = 0;
  const Types types = {f32({3, 17}), f32({3, 17}), f32({})};
  op.cases = {{"takes", types, {}, {"normal", "normal", "zero"}, {}},
              {"keeps", types, {}, {"unbounded", "normal", "value:2"}, {}}};
  return op;
}

// Counts over any number of tensors in one pass over all gradients; f32 and half precision may be mixed.
OpDef count_not_finite_op() {
  OpDef op;
  op.name = "count_not_finite";
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("count_not_finite", in, attrs);
    if (!check.require(!in.empty(), "takes at least one input") || !check.mixed_floats()) return check.failed();
    return check.outputs({{wide(in[0].dtype), Shape{}}});
  };
  op.reference = [](const ReferenceCall& call) {
    int64_t count = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const double* x = in(call, i);
      count += std::count_if(x, x + call.inputs[i].elements(), [](double v) { return !std::isfinite(v); });
    }
    *out(call) = static_cast<double>(count);
  };
  op.error_units = 0;
  op.cases = {{"none", {f32({3, 3, 5, 17})}, {}, {"normal"}, {}},
              {"some", {f32({41, 1000})}, {}, {"unbounded"}, {}},
              {"scalar", {f32({})}, {}, {"value:nan"}, {}},
              {"several", {f32({17}), f32({3, 3, 5, 17}), f32({1})}, {}, {"unbounded", "normal", "value:inf"}, {}}};
  return op;
}

// Maps scale, steps, skipped and bad to scale, steps and skipped after a step.
OpDef loss_scale_op() {
  OpDef op;
  op.name = "loss_scale";
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("loss_scale", in, attrs);
    if (!check.inputs(4) || !check.floats({0, 3}) || !check.type(1, DType::kInt64) || !check.type(2, DType::kInt64) ||
        !check.integer("growth_steps", 1))
      return check.failed();
    for (size_t i = 0; i < 4; ++i)
      if (!check.scalar(i)) return check.failed();
    return check.outputs({in[0], in[1], in[2]});
  };
  op.in_place = {{0, 0}, {1, 1}, {2, 2}};
  op.reference = [](const ReferenceCall& call) {
    const double scale = *in(call, 0), bad = *in(call, 3);
    const int64_t steps = *call.inputs[1].as<int64_t>(), skipped = *call.inputs[2].as<int64_t>();
    const bool grows = bad == 0 && steps == call.attrs.integer("growth_steps") - 1;
    *out(call) = bad != 0 ? scale * 0.5 : grows ? scale * 2 : scale;
    *call.outputs[1].as<int64_t>() = bad != 0 || grows ? 0 : steps + 1;
    *call.outputs[2].as<int64_t>() = skipped + (bad != 0 ? 1 : 0);
  };
  op.error_units = 0;
  const Types types = {f32({}), i64({}), i64({}), f32({})};
  const Attrs five = {{"growth_steps", int64_t{5}}};
  op.cases = {{"goes_on", types, five, {"value:1024", "step:2,0", "step:1,0", "zero"}, {}},
              {"grows", types, five, {"value:1024", "step:4,0", "step:1,0", "zero"}, {}},
              {"shrinks", types, five, {"value:1024", "step:4,0", "step:1,0", "value:3"}, {}}};
  return op;
}

// Inputs: iteration, skipped. Returns the difference.
OpDef applied_updates_op() {
  OpDef op;
  op.name = "applied_updates";
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("applied_updates", in, attrs);
    if (!check.inputs(2) || !check.scalar(0) || !check.scalar(1) || !check.type(0, DType::kInt64) ||
        !check.type(1, DType::kInt64))
      return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    *call.outputs[0].as<int64_t>() = *call.inputs[0].as<int64_t>() - *call.inputs[1].as<int64_t>();
  };
  op.cases = {{"some", {i64({}), i64({})}, {}, {"step:17,0", "step:3,0"}, {}}};
  return op;
}

// Inputs: rate, other, skipped, known. Returns `other` if more updates were skipped than the host knew (`known`), else
// rate.
OpDef scheduled_rate_op() {
  OpDef op;
  op.name = "scheduled_rate";
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("scheduled_rate", in, attrs);
    if (!check.inputs(4) || !check.floats({0, 1}) || !check.type(2, DType::kInt64) || !check.type(3, DType::kInt64))
      return check.failed();
    for (size_t i = 0; i < 4; ++i)
      if (!check.scalar(i)) return check.failed();
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    const int64_t skipped = *call.inputs[2].as<int64_t>(), known = *call.inputs[3].as<int64_t>();
    *out(call) = *in(call, skipped == known ? 0 : 1);
  };
  op.error_units = 0;
  const Types types = {f32({}), f32({}), i64({}), i64({})};
  op.cases = {{"known", types, {}, {"value:0.5", "value:0.25", "step:3,0", "step:3,0"}, {}},
              {"late", types, {}, {"value:0.5", "value:0.25", "step:4,0", "step:3,0"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> loss_scale_ops() {
  return {unscale_op(),    keep_if_op(),         count_not_finite_op(),
          loss_scale_op(), applied_updates_op(), scheduled_rate_op()};
}

}  // namespace plimsoll::engine
