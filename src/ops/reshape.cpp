// reshape: the same elements with another shape.
#include <cstring>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("reshape", in, attrs);
  if (!check.inputs(1) || !check.has("shape", "list")) return check.failed();
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(attrs.list("shape"), "reshape"));
  check.require(shape.elements() == in[0].shape.elements(),
                fmt::format("shape [{}] has {} elements, but the input has {}", to_text(shape), shape.elements(),
                            in[0].shape.elements()));
  return check.outputs({{in[0].dtype, std::move(shape)}});
}

}  // namespace

std::vector<OpDef> reshape_ops() {
  OpDef op;
  op.name = "reshape";
  op.kind = OpKind::kView;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = infer;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("reshape", {g.grad()}, {{"shape", g.type(g.in(0)).shape.dims}})};
  };
  op.reference = [](const ReferenceCall& call) {
    std::memmove(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.inputs[0].type.bytes()));
  };
  op.error_units = 0;
  op.cases = {{"flatten", {f32({2, 3, 4, 5})}, {{"shape", Ints{2, 60}}}, {"normal"}, {0}},
              {"scalar", {f32({1, 1})}, {{"shape", Ints{}}}, {"normal"}, {0}},
              {"integers", {i32({3, 5})}, {{"shape", Ints{15}}}, {"labels:9"}, {}}};
  return {op};
}

}  // namespace plimsoll::engine
