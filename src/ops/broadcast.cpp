// broadcast repeats and reduce_to sums over dimensions that are 1 or missing in the smaller shape (NumPy's rules,
// shapes aligned at the end). Each is the gradient of the other.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool fits(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  const size_t shift = large.rank() - small.rank();
  for (size_t i = 0; i < small.rank(); ++i)
    if (small[i] != 1 && small[i] != large[i + shift]) return false;
  return true;
}

Result<Types> infer(const std::string& name, bool grows, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.has("shape", "list")) return check.failed();
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(attrs.list("shape"), name));
  check.require(grows ? fits(in[0].shape, shape) : fits(shape, in[0].shape),
                fmt::format("[{}] does not broadcast to [{}]", to_text(grows ? in[0].shape : shape),
                            to_text(grows ? shape : in[0].shape)));
  return check.outputs({{in[0].dtype, std::move(shape)}});
}

// Calls body(large element, small element), large elements in order.
template <typename Body>
void for_pairs(const Shape& small, const Shape& large, Body body) {
  const size_t rank = large.rank(), shift = rank - small.rank();
  std::vector<int64_t> strides(rank, 0), at(rank, 0);
  int64_t stride = 1;
  for (size_t i = small.rank(); i-- > 0;) {
    strides[i + shift] = small[i] == 1 ? 0 : stride;
    stride *= small[i];
  }
  int64_t from = 0;
  for (int64_t i = 0; i < large.elements(); ++i) {
    body(i, from);
    for (size_t d = rank; d-- > 0;) {
      from += strides[d];
      if (++at[d] < large[d]) break;
      from -= strides[d] * at[d];
      at[d] = 0;
    }
  }
}

void reference_broadcast(const ReferenceCall& call) {
  for_pairs(call.inputs[0].type.shape, call.outputs[0].type.shape,
            [&](int64_t large, int64_t small) { out(call)[large] = in(call, 0)[small]; });
}

void reference_reduce(const ReferenceCall& call) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  if (x.rank() > 0 && y == Shape{x.back()}) {  // the bias gradient has its own fast path
    sum_channels(out(call), rows_of(x), x.back(), [from = in(call, 0)](int64_t i, int64_t) { return from[i]; });
    return;
  }
  std::fill_n(out(call), y.elements(), 0.0);
  for_pairs(y, x, [&](int64_t large, int64_t small) { out(call)[small] += in(call, 0)[large]; });
}

OpDef make(const std::string& name, const std::string& inverse, bool grows) {
  OpDef op;
  op.name = name;
  op.infer = [name, grows](InTypes in, const Attrs& attrs) { return infer(name, grows, in, attrs); };
  op.gradient = [inverse](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1(inverse, {g.grad()}, {{"shape", g.type(g.in(0)).shape.dims}})};
  };
  for (const auto& [label, small, large] :
       {std::tuple{"channels", f32({5}), f32({2, 3, 4, 5})}, std::tuple{"scalar", f32({}), f32({3, 17})},
        std::tuple{"squeeze_excite", f32({2, 1, 1, 3}), f32({2, 4, 5, 3})},
        std::tuple{"middle", f32({3, 1, 2}), f32({4, 3, 5, 2})}, std::tuple{"same", f32({1, 7}), f32({1, 7})}})
    op.cases.push_back(
        {label, {grows ? small : large}, {{"shape", (grows ? large : small).shape.dims}}, {"normal"}, {0}});
  return op;
}

}  // namespace

std::vector<OpDef> broadcast_ops() {
  OpDef broadcast = make("broadcast", "reduce_to", true), reduce = make("reduce_to", "broadcast", false);
  broadcast.recompute = Recompute::kCheap;
  broadcast.reference = reference_broadcast;
  broadcast.error_units = 0;
  reduce.kind = OpKind::kReduction;
  reduce.recompute = Recompute::kCostly;
  reduce.reference = reference_reduce;
  reduce.error_units = 16;
  reduce.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  return {broadcast, reduce};
}

}  // namespace plimsoll::engine
