// pad2d with zeros, and crop2d. Each is the gradient of the other.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(const std::string& name, int64_t sign, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, 4) || !check.list("pads", 4, 0)) return check.failed();
  const Shape& x = in[0].shape;
  const auto& pads = attrs.list("pads");
  const int64_t height = x[1] + sign * (pads[0] + pads[1]), width = x[2] + sign * (pads[2] + pads[3]);
  check.require(height > 0 && width > 0,
                fmt::format("pads=[{}] remove all of {}x{}", fmt::join(pads, ","), x[1], x[2]));
  return check.outputs({{in[0].dtype, Shape{x[0], height, width, x[3]}}});
}

// Calls `body` for each row of the larger image that lies inside the smaller one.
template <typename Body>
void for_rows(const Shape& small, const Shape& large, const Attrs& attrs, Body body) {
  const auto& pads = attrs.list("pads");
  for_each(small[0] * small[1], small[2] * small[3], [&](int64_t i) {
    const int64_t n = i / small[1], h = i % small[1];
    body(i * small[2] * small[3], ((n * large[1] + h + pads[0]) * large[2] + pads[2]) * small[3], small[2] * small[3]);
  });
}

OpDef make(const std::string& name, const std::string& inverse, int64_t sign) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCheap;
  op.infer = [name, sign](InTypes in, const Attrs& attrs) { return infer(name, sign, in, attrs); };
  op.gradient = [inverse](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1(inverse, {g.grad()}, g.node.attrs)};
  };
  op.error_units = 0;
  for (const auto& [label, shape, pads] : {std::tuple{"even", f32({2, 5, 6, 3}), Ints{1, 1, 1, 1}},
                                           std::tuple{"uneven", f32({1, 6, 4, 17}), Ints{0, 3, 1, 2}},
                                           std::tuple{"none", f32({2, 3, 3, 1}), Ints{0, 0, 0, 0}}})
    op.cases.push_back({label, {shape}, {{"pads", pads}}, {"normal"}, {0}});
  return op;
}

}  // namespace

std::vector<OpDef> pad2d_ops() {
  OpDef pad = make("pad2d", "crop2d", 1), crop = make("crop2d", "pad2d", -1);
  pad.reference = [](const ReferenceCall& call) {
    std::fill_n(out(call), call.outputs[0].elements(), 0.0);
    for_rows(call.inputs[0].type.shape, call.outputs[0].type.shape, call.attrs,
             [&](int64_t small, int64_t large, int64_t count) {
               std::copy_n(in(call, 0) + small, count, out(call) + large);
             });
  };
  crop.reference = [](const ReferenceCall& call) {
    for_rows(call.outputs[0].type.shape, call.inputs[0].type.shape, call.attrs,
             [&](int64_t small, int64_t large, int64_t count) {
               std::copy_n(in(call, 0) + large, count, out(call) + small);
             });
  };
  return {pad, crop};
}

}  // namespace plimsoll::engine
