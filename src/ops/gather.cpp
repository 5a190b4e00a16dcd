// Reads and sums by index. Indices are i32.
//
// gather takes whole slices along an axis: the axis is replaced by the shape of the ids. scatter_add is its gradient:
// slice i of the updates is added to slice ids[i] of a tensor of zeros with `size` slices (so it also sums segments);
// and gather is the gradient of scatter_add. take_along takes one element per id, along one axis, and take_along_grad
// adds it back. An id out of range reads NaN (0 in a tensor of integers), and what it names is not added anywhere.
#include <cstring>
#include <limits>

#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool check_axis(InferCheck& check, const Attrs& attrs, size_t rank) {
  return check.integer("axis", 0) &&
         check.require(attrs.integer("axis") < static_cast<int64_t>(rank),
                       fmt::format("axis={} is not one of {} dimensions", attrs.integer("axis"), rank));
}

Result<Types> infer_gather(InTypes in, const Attrs& attrs) {
  InferCheck check("gather", in, attrs);
  if (!check.inputs(2) || !check.type(1, DType::kInt32) || !check_axis(check, attrs, in[0].shape.rank()))
    return check.failed();
  const auto axis = attrs.integer("axis");
  Shape y = in[0].shape;
  y.dims.erase(y.dims.begin() + axis);
  y.dims.insert(y.dims.begin() + axis, in[1].shape.dims.begin(), in[1].shape.dims.end());
  return check.outputs({{in[0].dtype, std::move(y)}});
}

Result<Types> infer_scatter(InTypes in, const Attrs& attrs) {
  InferCheck check("scatter_add", in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.type(1, DType::kInt32) || !check.integer("size", 1) ||
      !check.integer("axis", 0))
    return check.failed();
  Shape y = in[0].shape;
  const Shape& ids = in[1].shape;
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  const bool fits = axis + ids.rank() <= y.rank() &&
                    std::equal(ids.dims.begin(), ids.dims.end(), y.dims.begin() + static_cast<int64_t>(axis));
  if (!check.require(fits, fmt::format("the updates must have the dimensions of the ids at axis {}", axis)))
    return check.failed();
  const auto first = y.dims.begin() + static_cast<int64_t>(axis);
  y.dims.erase(first, first + static_cast<int64_t>(ids.rank()));
  y.dims.insert(y.dims.begin() + static_cast<int64_t>(axis), attrs.integer("size"));
  return check.outputs({{in[0].dtype, std::move(y)}});
}

Result<Types> infer_take(InTypes in, const Attrs& attrs) {
  InferCheck check("take_along", in, attrs);
  if (!check.inputs(2) || !check.type(1, DType::kInt32) || !check_axis(check, attrs, in[0].shape.rank()))
    return check.failed();
  Shape same = in[1].shape;
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  if (same.rank() == in[0].shape.rank()) same.dims[axis] = in[0].shape[axis];
  check.require(same == in[0].shape, fmt::format("the inputs must differ only in dimension {}", axis));
  return check.outputs({{in[0].dtype, in[1].shape}});
}

Result<Types> infer_take_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("take_along_grad", in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.type(1, DType::kInt32) || !check.same_shape(0, 1) ||
      !check_axis(check, attrs, in[0].shape.rank()) || !check.integer("size", 1))
    return check.failed();
  Shape x = in[0].shape;
  x.dims[static_cast<size_t>(attrs.integer("axis"))] = attrs.integer("size");
  return check.outputs({{in[0].dtype, std::move(x)}});
}

Attrs with_size(const GradientCall& g) {
  const int64_t axis = g.node.attrs.integer("axis");
  return {{"axis", axis}, {"size", g.type(g.in(0)).shape[static_cast<size_t>(axis)]}};
}

// Fills with what an id out of range reads.
void fill_missing(void* to, int64_t count, DType dtype) {
  if (is_floating(dtype))
    std::fill_n(static_cast<double*>(to), count, std::numeric_limits<double>::quiet_NaN());
  else
    std::memset(to, 0, static_cast<size_t>(count * size_of(dtype)));
}

void reference_gather(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const AroundAxis around(x.type.shape, static_cast<size_t>(call.attrs.integer("axis")));
  const auto* ids = call.inputs[1].as<int32_t>();
  const int64_t count = call.inputs[1].elements();
  const Bytes strip = around.inner * size_of(x.type.dtype);
  for_each(around.outer * count, around.inner, [&](int64_t i) {
    const int64_t id = ids[i % count];
    char* to = static_cast<char*>(y.data) + i * strip;
    if (id < 0 || id >= around.size) return fill_missing(to, around.inner, x.type.dtype);
    std::memcpy(to, static_cast<const char*>(x.data) + (i / count * around.size + id) * strip,
                static_cast<size_t>(strip));
  });
}

void reference_scatter(const ReferenceCall& call) {
  const AroundAxis y(call.outputs[0].type.shape, static_cast<size_t>(call.attrs.integer("axis")));
  const auto* ids = call.inputs[1].as<int32_t>();
  const int64_t count = call.inputs[1].elements();
  std::fill_n(out(call), call.outputs[0].elements(), 0.0);
  for (int64_t i = 0; i < y.outer * count; ++i) {
    const int64_t id = ids[i % count];
    if (id < 0 || id >= y.size) continue;
    for (int64_t k = 0; k < y.inner; ++k)
      out(call)[(i / count * y.size + id) * y.inner + k] += in(call, 0)[i * y.inner + k];
  }
}

// Calls body(element of the ids, element of x or -1) in order.
template <typename Body>
void for_ids(const TensorView& ids_view, const Shape& x, const Attrs& attrs, Body body) {
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  const AroundAxis around(ids_view.type.shape, axis);
  const auto* ids = ids_view.as<int32_t>();
  for (int64_t i = 0; i < ids_view.elements(); ++i) {
    const bool inside = ids[i] >= 0 && ids[i] < x[axis];
    const int64_t outer = i / (around.size * around.inner);
    body(i, inside ? (outer * x[axis] + ids[i]) * around.inner + i % around.inner : -1);
  }
}

void reference_take(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const Bytes size = size_of(x.type.dtype);
  for_ids(call.inputs[1], x.type.shape, call.attrs, [&](int64_t i, int64_t at) {
    char* to = static_cast<char*>(y.data) + i * size;
    if (at < 0) return fill_missing(to, 1, x.type.dtype);
    std::memcpy(to, static_cast<const char*>(x.data) + at * size, static_cast<size_t>(size));
  });
}

void reference_take_grad(const ReferenceCall& call) {
  std::fill_n(out(call), call.outputs[0].elements(), 0.0);
  for_ids(call.inputs[1], call.outputs[0].type.shape, call.attrs, [&](int64_t i, int64_t at) {
    if (at >= 0) out(call)[at] += in(call, 0)[i];
  });
}

OpDef make(const std::string& name, const std::string& inverse, bool sized_inverse) {
  OpDef op;
  op.name = name;
  op.gradient = [inverse, sized_inverse](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone};
    const Attrs attrs = sized_inverse ? with_size(g) : Attrs{{"axis", g.node.attrs.integer("axis")}};
    return {g.b.add1(inverse, {g.grad(), g.in(1)}, attrs), kNone};
  };
  op.recompute = sized_inverse ? Recompute::kCheap : Recompute::kCostly;
  op.error_units = sized_inverse ? 0 : 16;
  return op;
}

}  // namespace

std::vector<OpDef> gather_ops() {
  const auto axis = [](int64_t a) { return Attrs{{"axis", a}}; };
  const auto sized = [](int64_t a, int64_t size) { return Attrs{{"axis", a}, {"size", size}}; };

  OpDef gather = make("gather", "scatter_add", true);
  gather.infer = infer_gather;
  gather.reference = reference_gather;
  gather.cases = {{"rows", {f32({7, 5}), i32({3, 2})}, axis(0), {"normal", "labels:7"}, {0}},
                  {"middle", {f32({2, 6, 3}), i32({4})}, axis(1), {"normal", "labels:6"}, {0}},
                  {"last", {f32({3, 9}), i32({2, 2})}, axis(1), {"normal", "labels:9"}, {0}},
                  {"one_id", {f32({3, 4}), i32({})}, axis(0), {"normal", "labels:3"}, {0}},
                  {"wide", {f32({40, 130}), i32({70})}, axis(0), {"normal", "labels:40"}, {}},
                  {"integers", {i32({8, 3}), i32({5})}, axis(0), {"labels:90", "labels:10"}, {}}};

  OpDef scatter = make("scatter_add", "gather", false);
  scatter.infer = infer_scatter;
  scatter.reference = reference_scatter;
  scatter.cases = {{"rows", {f32({3, 2, 5}), i32({3, 2})}, sized(0, 7), {"normal", "labels:7"}, {0}},
                   {"segments", {f32({300, 3}), i32({300})}, sized(0, 4), {"uniform", "labels:4"}, {0}},
                   {"middle", {f32({2, 5, 3}), i32({5})}, sized(1, 6), {"normal", "labels:6"}, {0}},
                   {"last", {f32({4, 33}), i32({33})}, sized(1, 9), {"normal", "labels:9"}, {0}},
                   {"outside", {f32({50, 2}), i32({50})}, sized(0, 6), {"normal", "integers:9"}, {}},
                   {"one_id", {f32({4}), i32({})}, sized(0, 3), {"normal", "labels:3"}, {0}}};

  OpDef take = make("take_along", "take_along_grad", true);
  take.infer = infer_take;
  take.reference = reference_take;
  take.cases = {{"last", {f32({4, 9}), i32({4, 3})}, axis(1), {"normal", "labels:9"}, {0}},
                {"middle", {f32({2, 5, 3}), i32({2, 8, 3})}, axis(1), {"normal", "labels:5"}, {0}},
                {"first", {f32({6, 17}), i32({2, 17})}, axis(0), {"normal", "labels:6"}, {0}},
                {"integers", {i32({3, 5}), i32({3, 2})}, axis(1), {"labels:90", "labels:7"}, {}}};

  OpDef take_grad = make("take_along_grad", "take_along", false);
  take_grad.infer = infer_take_grad;
  take_grad.reference = reference_take_grad;
  take_grad.cases = {{"last", {f32({4, 3}), i32({4, 3})}, sized(1, 9), {"normal", "labels:9"}, {0}},
                     {"middle", {f32({2, 8, 3}), i32({2, 8, 3})}, sized(1, 5), {"normal", "labels:5"}, {0}},
                     {"ties", {f32({3, 200}), i32({3, 200})}, sized(1, 2), {"uniform", "labels:3"}, {}}};
  return {gather, scatter, take, take_grad};
}

}  // namespace plimsoll::engine
