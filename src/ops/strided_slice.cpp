// strided_slice takes size[d] elements of each dimension, beginning at begin[d] and strides[d] apart; a negative stride
// runs backwards. strided_slice_grad puts them back among zeros. Each is the gradient of the other.
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kLargest = int64_t{1} << 31;

// Checks begin, size and strides against the shape of the larger tensor.
bool check_slice(InferCheck& check, const Shape& x, const Attrs& attrs) {
  if (!check.list("begin", x.rank(), 0) || !check.list("size", x.rank(), 1) ||
      !check.list("strides", x.rank(), -kLargest))
    return false;
  for (size_t d = 0; d < x.rank(); ++d) {
    const int64_t begin = attrs.list("begin")[d], size = attrs.list("size")[d], stride = attrs.list("strides")[d];
    // All three are at most 2^31, so the product cannot overflow.
    const int64_t last = begin + (size - 1) * stride;
    if (!check.require(stride != 0 && begin < x[d] && last >= 0 && last < x[d],
                       fmt::format("{} elements from {} by {} are not inside dimension {} of {} elements", size, begin,
                                   stride, d, x[d])))
      return false;
  }
  return true;
}

Result<Types> infer_slice(InTypes in, const Attrs& attrs) {
  InferCheck check("strided_slice", in, attrs);
  if (!check.inputs(1) || !check_slice(check, in[0].shape, attrs)) return check.failed();
  return check.outputs({{in[0].dtype, Shape(attrs.list("size"))}});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("strided_slice_grad", in, attrs);
  if (!check.inputs(1) || !check.has("shape", "list")) return check.failed();
  PLIMSOLL_ASSIGN(Shape x, checked_shape(attrs.list("shape"), "strided_slice_grad"));
  if (!check_slice(check, x, attrs)) return check.failed();
  check.require(in[0].shape.dims == attrs.list("size"), "dy must have the shape `size`");
  return check.outputs({{in[0].dtype, std::move(x)}});
}

Attrs slice_attrs(const Attrs& attrs) {
  return {{"begin", attrs.list("begin")}, {"size", attrs.list("size")}, {"strides", attrs.list("strides")}};
}

void reference_slice(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  with_element_of(size_of(x.type.dtype), [&](auto zero) {
    using T = decltype(zero);
    for_each_element(sliced_view(x.type.shape, call.attrs),
                     [from = static_cast<const T*>(x.data), to = static_cast<T*>(y.data)](int64_t i, int64_t at) {
                       to[i] = from[at];
                     });
  });
}

void reference_grad(const ReferenceCall& call) {
  const TensorView &dy = call.inputs[0], &dx = call.outputs[0];
  with_element_of(size_of(dy.type.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(dx.data), dx.elements(), T{0});
    for_each_element(sliced_view(dx.type.shape, call.attrs),
                     [from = static_cast<const T*>(dy.data), to = static_cast<T*>(dx.data)](int64_t i, int64_t at) {
                       to[at] = from[i];
                     });
  });
}

}  // namespace

std::vector<OpDef> strided_slice_ops() {
  OpDef slice;
  slice.name = "strided_slice";
  slice.recompute = Recompute::kCheap;
  slice.infer = infer_slice;
  slice.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    Attrs attrs = g.node.attrs;
    attrs.set("shape", g.type(g.in(0)).shape.dims);
    return {g.b.add1("strided_slice_grad", {g.grad()}, attrs)};
  };
  slice.reference = reference_slice;
  slice.error_units = 0;

  OpDef grad;
  grad.name = "strided_slice_grad";
  grad.recompute = Recompute::kCheap;
  grad.infer = infer_grad;
  grad.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("strided_slice", {g.grad()}, slice_attrs(g.node.attrs))};
  };
  grad.reference = reference_grad;
  grad.error_units = 0;

  struct Problem {
    const char* name;
    Ints shape, begin, size, strides;
  };
  for (const Problem& p : std::initializer_list<Problem>{{"box", {4, 6, 5}, {1, 2, 0}, {2, 3, 5}, {1, 1, 1}},
                                                         {"every_second", {3, 9, 4}, {0, 1, 0}, {3, 4, 4}, {1, 2, 1}},
                                                         {"reversed", {5, 7}, {4, 6}, {5, 7}, {-1, -1}},
                                                         {"steps", {2, 20, 33}, {1, 19, 2}, {1, 5, 10}, {1, -4, 3}},
                                                         {"whole", {3, 4}, {0, 0}, {3, 4}, {1, 1}},
                                                         {"one", {6}, {5}, {1}, {7}}}) {
    Attrs attrs{{"begin", p.begin}, {"size", p.size}, {"strides", p.strides}};
    slice.cases.push_back({p.name, {{DType::kFloat32, Shape(p.shape)}}, attrs, {"normal"}, {0}});
    attrs.set("shape", p.shape);
    grad.cases.push_back({p.name, {{DType::kFloat32, Shape(p.size)}}, attrs, {"normal"}, {0}});
  }
  slice.cases.push_back({"integers",
                         {i32({4, 5})},
                         {{"begin", Ints{3, 0}}, {"size", Ints{2, 3}}, {"strides", Ints{-2, 2}}},
                         {"labels:9"},
                         {}});
  return {slice, grad};
}

}  // namespace plimsoll::engine
