// Ops that only lowering creates. `fused` runs a body of element-wise nodes, with reductions at its end, in one pass.
// `reorder` changes the layout of values, each separately. The reference of `fused` runs the body node by node; the
// reference of `reorder` copies.
#include <cstring>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// Buffers for the intermediate values of a body.
class BodyRun {
 public:
  explicit BodyRun(const ReferenceCall& call) : body_(*call.body), views_(body_.values.size()) {
    for (size_t i = 0; i < body_.values.size(); ++i) views_[i].type = body_.values[i].type;
    for (size_t i = 0; i < body_.inputs.size(); ++i) view(body_.inputs[i]).data = call.inputs[i].data;
    // Outputs get buffers too, because the caller may have placed one over an input that a later node still reads.
    for (const Node& node : body_.nodes)
      for (ValueId id : node.outputs) {
        buffers_.emplace_back(static_cast<size_t>((view(id).type.bytes() + 7) / 8));
        view(id).data = buffers_.back().data();
      }
  }

  void run(const ReferenceCall& call) {
    for (const Node& node : body_.nodes) {
      const auto inputs = views(node.inputs), outputs = views(node.outputs);
      op_def(node.op).reference({inputs, outputs, node.attrs, node.body.get()});
    }
    for (size_t i = 0; i < body_.outputs.size(); ++i)
      std::memmove(call.outputs[i].data, view(body_.outputs[i]).data,
                   static_cast<size_t>(call.outputs[i].type.bytes()));
  }

 private:
  TensorView& view(ValueId id) { return views_[static_cast<size_t>(id)]; }
  std::vector<TensorView> views(const std::vector<ValueId>& ids) {
    std::vector<TensorView> list;
    for (ValueId id : ids) list.push_back(view(id));
    return list;
  }

  const Graph& body_;
  std::vector<TensorView> views_;
  std::vector<std::vector<double>> buffers_;
};

}  // namespace

std::vector<OpDef> fused_ops() {
  OpDef fused;
  fused.name = "fused";
  fused.recompute = Recompute::kCheap;
  fused.infer = [](InTypes, const Attrs&) -> Result<Types> {
    return fail(ErrorCode::kInternal,
                "fused: its outputs are those of its body; create the node without shape inference");
  };
  fused.reference = [](const ReferenceCall& call) {
    assert(call.body);
    BodyRun(call).run(call);
  };

  OpDef reorder;
  reorder.name = "reorder";
  reorder.recompute = Recompute::kCheap;
  reorder.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("reorder", in, attrs);
    if (!check.require(!in.empty(), "it needs an input") || !check.has("layout", "text")) return check.failed();
    return check.outputs({in.begin(), in.end()});
  };
  reorder.reference = [](const ReferenceCall& call) {
    for (size_t i = 0; i < call.inputs.size(); ++i)
      std::memcpy(call.outputs[i].data, call.inputs[i].data, static_cast<size_t>(call.inputs[i].type.bytes()));
  };
  reorder.error_units = 0;
  reorder.cases = {{"row_major", {f32({2, 3, 3, 5})}, {{"layout", ""}}, {"normal"}, {}}};
  return {fused, reorder};
}

}  // namespace plimsoll::engine
