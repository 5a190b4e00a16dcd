// Copies of values that wait in host memory between two readers. A copy takes long and runs concurrently with the
// computation, so it has two nodes: one starts it and one waits for it. The second node reads what the first reads,
// which keeps both source and destination alive until the copy is finished.
#include <cstring>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// All `inputs` have one type. The output has the contents of the first one, in another memory or in place.
OpDef copy_op(const std::string& name, size_t inputs, OpKind kind) {
  OpDef op;
  op.name = name;
  op.kind = kind;
  op.copies = kind != OpKind::kView;
  if (kind == OpKind::kView) op.in_place = {{0, 0}};
  op.infer = [name, inputs](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(inputs)) return check.failed();
    for (size_t i = 1; i < inputs; ++i) check.require(in[i] == in[0], "its inputs must have the same type");
    return check.outputs({in[0]});
  };
  op.reference = [](const ReferenceCall& call) {
    std::memmove(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.inputs[0].type.bytes()));
  };
  op.error_units = 0;
  op.cases = {{"image", Types(inputs, f32({3, 17, 16, 5})), {}, std::vector<std::string>(inputs, "normal"), {}}};
  return op;
}

}  // namespace

std::vector<OpDef> offload_ops() {
  return {copy_op("to_host", 1, OpKind::kOther),         // x -> h
          copy_op("to_host_done", 2, OpKind::kView),     // h, x -> h, which now holds the contents of x
          copy_op("to_device", 1, OpKind::kOther),       // h -> y
          copy_op("to_device_done", 2, OpKind::kView)};  // y, h -> y, which now holds the contents of x
}

}  // namespace plimsoll::engine
