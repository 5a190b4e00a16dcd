// Values that wait in the host's memory between two readers. A copy takes long and runs beside the computation, so each
// has two nodes: one that begins it and one that waits for it. The second reads what the first reads: both ends of a
// copy are alive until it is over.
#include <cstring>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// `inputs` of one type; the output is the first of them, elsewhere or as it is.
OpDef copy_op(const std::string& name, size_t inputs, OpKind kind) {
  OpDef op;
  op.name = name;
  op.kind = kind;
  op.copies = kind != OpKind::kView;
  if (kind == OpKind::kView) op.in_place = {{0, 0}};
  op.infer = [name, inputs](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(inputs)) return check.failed();
    for (size_t i = 1; i < inputs; ++i) check.require(in[i] == in[0], "its inputs differ");
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
          copy_op("to_host_done", 2, OpKind::kView),     // h, x -> h, from now on what x was
          copy_op("to_device", 1, OpKind::kOther),       // h -> y
          copy_op("to_device_done", 2, OpKind::kView)};  // y, h -> y, from now on what x was
}

}  // namespace plimsoll::engine
