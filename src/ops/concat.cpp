// concat along an axis, and slice. concat's gradient consists of slices; slice's gradient is concat with zeros.
#include <cstring>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_axis(InferCheck& check, InTypes in, const Attrs& attrs) {
  return check.integer("axis", 0) &&
         check.require(attrs.integer("axis") < static_cast<int64_t>(in[0].shape.rank()),
                       fmt::format("axis={} is not one of {} dimensions", attrs.integer("axis"), in[0].shape.rank()));
}

Result<Types> infer_concat(InTypes in, const Attrs& attrs) {
  InferCheck check("concat", in, attrs);
  if (!check.require(!in.empty(), "takes at least one input") || !check_axis(check, in, attrs)) return check.failed();
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  TensorType type = in[0];
  for (size_t i = 1; i < in.size(); ++i) {
    Shape same = in[i].shape;
    if (same.rank() == type.shape.rank()) same.dims[axis] = in[0].shape[axis];
    check.require(same == in[0].shape && in[i].dtype == in[0].dtype,
                  fmt::format("inputs must differ only in dimension {}", axis));
    if (same == in[0].shape) type.shape.dims[axis] += in[i].shape[axis];
  }
  return check.outputs({type});
}

Result<Types> infer_slice(InTypes in, const Attrs& attrs) {
  InferCheck check("slice", in, attrs);
  if (!check.inputs(1) || !check_axis(check, in, attrs) || !check.integer("begin", 0) || !check.integer("size", 1))
    return check.failed();
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  const int64_t begin = attrs.integer("begin"), size = attrs.integer("size");
  check.require(begin + size <= in[0].shape[axis], fmt::format("{} to {} is not inside dimension {} of {} elements",
                                                               begin, begin + size, axis, in[0].shape[axis]));
  TensorType type = in[0];
  type.shape.dims[axis] = size;
  return check.outputs({type});
}

Attrs slice_attrs(int64_t axis, int64_t begin, int64_t size) {
  return {{"axis", axis}, {"begin", begin}, {"size", size}};
}

std::vector<ValueId> concat_gradient(const GradientCall& g) {
  const int64_t axis = g.node.attrs.integer("axis");
  std::vector<ValueId> grads;
  int64_t begin = 0;
  for (size_t i = 0; i < g.node.inputs.size(); ++i) {
    const int64_t size = g.type(g.in(i)).shape[static_cast<size_t>(axis)];
    grads.push_back(g.wants(i) ? g.b.add1("slice", {g.grad()}, slice_attrs(axis, begin, size)) : kNone);
    begin += size;
  }
  return grads;
}

std::vector<ValueId> slice_gradient(const GradientCall& g) {
  if (!g.wants(0)) return {kNone};
  const int64_t axis = g.node.attrs.integer("axis");
  const int64_t begin = g.node.attrs.integer("begin"), size = g.node.attrs.integer("size");
  const TensorType x = g.type(g.in(0));
  const auto zeros = [&](int64_t count) {
    Shape shape = x.shape;
    shape.dims[static_cast<size_t>(axis)] = count;
    return g.b.add1("fill", {}, {{"shape", shape.dims}, {"value", 0.0}, {"dtype", std::string(name_of(x.dtype))}});
  };
  const int64_t behind = x.shape[static_cast<size_t>(axis)] - begin - size;
  std::vector<ValueId> parts;
  if (begin > 0) parts.push_back(zeros(begin));
  parts.push_back(g.grad());
  if (behind > 0) parts.push_back(zeros(behind));
  return {parts.size() == 1 ? parts[0] : g.b.add1("concat", parts, {{"axis", axis}})};
}

// The bytes of one index of the axis with all inner dimensions, and the product of the outer dimensions.
struct Strips {
  Bytes inner;
  int64_t outer;

  Strips(const TensorType& type, size_t axis) : inner(size_of(type.dtype)), outer(1) {
    for (size_t i = 0; i < type.shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : type.shape[i];
  }
};

void copy_strip(void* to, const void* from, Bytes bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void reference_concat(const ReferenceCall& call) {
  const auto axis = static_cast<size_t>(call.attrs.integer("axis"));
  const TensorView& y = call.outputs[0];
  const Strips strips(y.type, axis);
  int64_t begin = 0;
  for (const TensorView& x : call.inputs) {
    const Bytes strip = x.type.shape[axis] * strips.inner;
    for_each(strips.outer, strip, [&](int64_t i) {
      copy_strip(static_cast<char*>(y.data) + (i * y.type.shape[axis] + begin) * strips.inner,
                 static_cast<const char*>(x.data) + i * strip, strip);
    });
    begin += x.type.shape[axis];
  }
}

void reference_slice(const ReferenceCall& call) {
  const auto axis = static_cast<size_t>(call.attrs.integer("axis"));
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const Strips strips(x.type, axis);
  const Bytes strip = y.type.shape[axis] * strips.inner;
  for_each(strips.outer, strip, [&](int64_t i) {
    copy_strip(static_cast<char*>(y.data) + i * strip,
               static_cast<const char*>(x.data) + (i * x.type.shape[axis] + call.attrs.integer("begin")) * strips.inner,
               strip);
  });
}

}  // namespace

std::vector<OpDef> concat_ops() {
  OpDef concat;
  concat.name = "concat";
  concat.recompute = Recompute::kCheap;
  concat.infer = infer_concat;
  concat.gradient = concat_gradient;
  concat.reference = reference_concat;
  concat.error_units = 0;
  const auto axis = [](int64_t a) { return Attrs{{"axis", a}}; };
  concat.cases = {
      {"channels", {f32({2, 3, 3, 5}), f32({2, 3, 3, 17})}, axis(3), {"normal", "normal"}, {0, 1}},
      {"three", {f32({2, 1, 3}), f32({2, 4, 3}), f32({2, 2, 3})}, axis(1), {"normal", "normal", "normal"}, {0, 1, 2}},
      {"batch", {f32({1, 3}), f32({2, 3})}, axis(0), {"normal", "normal"}, {0, 1}},
      {"one", {f32({3, 5})}, axis(1), {"normal"}, {0}}};

  OpDef slice;
  slice.name = "slice";
  slice.recompute = Recompute::kCheap;
  slice.infer = infer_slice;
  slice.gradient = slice_gradient;
  slice.reference = reference_slice;
  slice.error_units = 0;
  slice.cases = {{"channels", {f32({2, 3, 3, 17})}, slice_attrs(3, 5, 7), {"normal"}, {0}},
                 {"front", {f32({4, 3})}, slice_attrs(0, 0, 2), {"normal"}, {0}},
                 {"back", {f32({2, 5, 3})}, slice_attrs(1, 4, 1), {"normal"}, {0}},
                 {"whole", {f32({3, 5})}, slice_attrs(1, 0, 5), {"normal"}, {0}}};
  return {concat, slice};
}

}  // namespace plimsoll::engine
