// bias_add, channel_scale, add, multiply, scale and affine.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

OpDef elementwise(const std::string& name) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.error_units = 2;
  return op;
}

OpDef bias_add_op() {
  OpDef op = elementwise("bias_add");
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("bias_add", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.channels(1, 0)) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    const ValueId db = g.wants(1) ? g.b.add1("reduce_to", {g.grad()}, {{"shape", g.type(g.in(1)).shape.dims}}) : kNone;
    return {g.wants(0) ? g.grad() : kNone, db};
  };
  op.reference = [](const ReferenceCall& call) {
    const Shape& x = call.inputs[0].type.shape;
    map_channels(out(call), rows_of(x), channels_of(x),
                 [a = in(call, 0), b = in(call, 1)](int64_t i, int64_t c) { return a[i] + b[c]; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({5})}, {}, {"normal", "normal"}, {0, 1}},
              {"row", {f32({1, 17}), f32({17})}, {}, {"normal", "normal"}, {0, 1}},
              {"one_channel", {f32({3, 1}), f32({1})}, {}, {"normal", "normal"}, {0, 1}}};
  return op;
}

OpDef channel_scale_op() {
  OpDef op = elementwise("channel_scale");
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("channel_scale", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.channels(1, 0)) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    const ValueId dx = g.wants(0) ? g.b.add1("channel_scale", {g.grad(), g.in(1)}) : kNone;
    const ValueId ds = g.wants(1) ? g.b.add1("reduce_to", {g.b.add1("multiply", {g.grad(), g.in(0)})},
                                             {{"shape", g.type(g.in(1)).shape.dims}})
                                  : kNone;
    return {dx, ds};
  };
  op.reference = [](const ReferenceCall& call) {
    const Shape& x = call.inputs[0].type.shape;
    map_channels(out(call), rows_of(x), channels_of(x),
                 [a = in(call, 0), s = in(call, 1)](int64_t i, int64_t c) { return a[i] * s[c]; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({5})}, {}, {"normal", "normal"}, {0, 1}},
              {"row", {f32({1, 17}), f32({17})}, {}, {"normal", "normal"}, {0, 1}},
              {"one_channel", {f32({3, 1}), f32({1})}, {}, {"normal", "normal"}, {0, 1}}};
  return op;
}

Result<Types> infer_pair(std::string_view name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(2) || !check.all_floats() || !check.same_shape(0, 1)) return check.failed();
  return check.outputs({in[0]});
}

OpDef add_op() {
  OpDef op = elementwise("add");
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) { return infer_pair("add", in, attrs); };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    return {g.wants(0) ? g.grad() : kNone, g.wants(1) ? g.grad() : kNone};
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [a = in(call, 0), b = in(call, 1)](int64_t i) { return a[i] + b[i]; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({2, 3, 4, 5})}, {}, {"normal", "normal"}, {0, 1}},
              {"scalar", {f32({}), f32({})}, {}, {"normal", "normal"}, {0, 1}},
              {"odd", {f32({1, 17}), f32({1, 17})}, {}, {"normal", "normal"}, {0, 1}}};
  return op;
}

OpDef multiply_op() {
  OpDef op = elementwise("multiply");
  op.in_place = {{0, 0}, {1, 0}};
  op.infer = [](InTypes in, const Attrs& attrs) { return infer_pair("multiply", in, attrs); };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    const ValueId da = g.wants(0) ? g.b.add1("multiply", {g.grad(), g.in(1)}) : kNone;
    const ValueId db = g.wants(1) ? g.b.add1("multiply", {g.grad(), g.in(0)}) : kNone;
    return {da, db};
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [a = in(call, 0), b = in(call, 1)](int64_t i) { return a[i] * b[i]; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({2, 3, 4, 5})}, {}, {"normal", "normal"}, {0, 1}},
              {"odd", {f32({1, 17}), f32({1, 17})}, {}, {"normal", "normal"}, {0, 1}}};
  return op;
}

OpDef scale_op() {
  OpDef op = elementwise("scale");
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("scale", in, attrs);
    if (!check.inputs(2) || !check.all_floats() || !check.scalar(1)) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    const ValueId dx = g.wants(0) ? g.b.add1("scale", {g.grad(), g.in(1)}) : kNone;
    const ValueId ds = g.wants(1) ? g.b.add1("reduce_to", {g.b.add1("multiply", {g.grad(), g.in(0)})},
                                             {{"shape", std::vector<int64_t>{}}})
                                  : kNone;
    return {dx, ds};
  };
  op.reference = [](const ReferenceCall& call) {
    map_elements(out(call), call.outputs[0].elements(),
                 [a = in(call, 0), s = *in(call, 1)](int64_t i) { return a[i] * s; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5}), f32({})}, {}, {"normal", "normal"}, {0, 1}},
              {"scalar", {f32({}), f32({})}, {}, {"normal", "normal"}, {0, 1}}};
  return op;
}

OpDef affine_op() {
  OpDef op = elementwise("affine");
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("affine", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check.real("scale") || !check.real("offset")) return check.failed();
    return check.outputs({in[0]});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("affine", {g.grad()}, {{"scale", g.node.attrs.real("scale")}, {"offset", 0.0}})};
  };
  op.reference = [](const ReferenceCall& call) {
    const double scale = call.attrs.real("scale"), offset = call.attrs.real("offset");
    map_elements(out(call), call.outputs[0].elements(),
                 [=, a = in(call, 0)](int64_t i) { return a[i] * scale + offset; });
  };
  op.cases = {{"image", {f32({2, 3, 4, 5})}, {{"scale", 0.0078125}, {"offset", -1.0}}, {"normal"}, {0}},
              {"negative", {f32({7})}, {{"scale", -0.3}, {"offset", 2.5}}, {"normal"}, {0}}};
  return op;
}

}  // namespace

std::vector<OpDef> arithmetic_ops() {
  return {bias_add_op(), channel_scale_op(), add_op(), multiply_op(), scale_op(), affine_op()};
}

}  // namespace plimsoll::engine
