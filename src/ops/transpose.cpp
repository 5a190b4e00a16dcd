// transpose: dimension i of y is dimension perm[i] of x. Its gradient is the transpose back.
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("transpose", in, attrs);
  if (!check.inputs(1) || !check.list("perm", in[0].shape.rank(), 0)) return check.failed();
  const auto& perm = attrs.list("perm");
  std::vector<bool> seen(perm.size(), false);
  Shape y;
  for (int64_t axis : perm) {
    const bool fresh = axis < static_cast<int64_t>(perm.size()) && !seen[static_cast<size_t>(axis)];
    if (!check.require(
            fresh, fmt::format("perm=[{}] must name each of {} dimensions once", fmt::join(perm, ","), perm.size())))
      return check.failed();
    seen[static_cast<size_t>(axis)] = true;
    y.dims.push_back(in[0].shape[static_cast<size_t>(axis)]);
  }
  return check.outputs({{in[0].dtype, std::move(y)}});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  if (!g.wants(0)) return {kNone};
  return {g.b.add1("transpose", {g.grad()}, {{"perm", inverse_permutation(g.node.attrs.list("perm"))}})};
}

void reference(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const StridedView view = collapsed(transposed_view(x.type.shape, call.attrs.list("perm")));
  with_element_of(size_of(x.type.dtype), [&](auto zero) {
    using T = decltype(zero);
    for_each_element(view, [from = static_cast<const T*>(x.data), to = static_cast<T*>(y.data)](int64_t i, int64_t at) {
      to[i] = from[at];
    });
  });
}

}  // namespace

std::vector<OpDef> transpose_ops() {
  OpDef op;
  op.name = "transpose";
  op.recompute = Recompute::kCheap;
  op.infer = infer;
  op.gradient = gradient;
  op.reference = reference;
  op.error_units = 0;
  const auto perm = [](Ints axes) { return Attrs{{"perm", std::move(axes)}}; };
  op.cases = {{"matrix", {f32({37, 70})}, perm({1, 0}), {"normal"}, {0}},
              {"channels_first", {f32({2, 5, 7, 11})}, perm({0, 3, 1, 2}), {"normal"}, {0}},
              {"channels_last", {f32({2, 35, 5, 6})}, perm({0, 2, 3, 1}), {"normal"}, {0}},
              {"heads", {f32({2, 9, 3, 8})}, perm({0, 2, 1, 3}), {"normal"}, {0}},
              {"backwards", {f32({3, 4, 5, 6})}, perm({3, 2, 1, 0}), {"normal"}, {0}},
              {"five", {f32({2, 3, 4, 5, 6})}, perm({4, 0, 2, 1, 3}), {"normal"}, {0}},
              {"ones", {f32({1, 7, 1, 5})}, perm({2, 1, 0, 3}), {"normal"}, {0}},
              {"scalar", {f32({})}, perm({}), {"normal"}, {0}},
              {"integers", {i32({33, 3})}, perm({1, 0}), {"labels:9"}, {}}};
  return {op};
}

}  // namespace plimsoll::engine
