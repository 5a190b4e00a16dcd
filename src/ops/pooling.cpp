#include "ops/pooling.h"

namespace plimsoll::engine {

OpDef pooling_op(const std::string& name, bool with_index, PoolingInfer infer,
                 void (*reference)(const ReferenceCall&)) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name, with_index, infer](InTypes in, const Attrs& attrs) { return infer(name, with_index, in, attrs); };
  op.reference = reference;
  return op;
}

std::function<std::vector<ValueId>(const GradientCall&)> pooling_gradient(const std::string& name, bool with_index) {
  return [name, with_index](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    std::vector<ValueId> inputs = {g.grad()};
    if (with_index) inputs.push_back(g.out(1));
    const Shape& image = g.type(g.in(0)).shape;
    Attrs attrs = g.node.attrs;
    attrs.set("input_size", Ints(image.dims.begin() + 1, image.dims.end() - 1));
    return {g.b.add1(name + "_grad", inputs, attrs)};
  };
}

OpCase pooling_grad_case(const std::string& label, const TensorType& dy, Attrs attrs,
                         const std::optional<PoolingIndex>& index) {
  OpCase one{label, {dy}, std::move(attrs), {"normal"}, {}};
  if (index) {
    one.inputs.push_back({index->dtype, dy.shape});
    one.fill.push_back(index->fill);
  }
  return one;
}

}  // namespace plimsoll::engine
