// resample: one dimension of a tensor to another size, by weighted sums of neighbours; adaptive_max_pool: the same by
// the maximum of each window, with its position; and their gradients. Images are resampled one dimension after the
// other.
#include "ops/resample.h"

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// A tensor around its axis: [outer, size, inner].
struct Around {
  int64_t outer = 1, inner = 1;

  Around(const Shape& shape, int64_t axis) {
    for (int64_t d = 0; d < axis; ++d) outer *= shape[static_cast<size_t>(d)];
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.rank(); ++d) inner *= shape[d];
  }
};

bool check_attrs(InferCheck& check, InTypes in, const Attrs& attrs, bool with_method) {
  if (!check.integer("axis", 0) || !check.integer("size", 1)) return false;
  const int64_t axis = attrs.integer("axis");
  if (!check.require(axis < static_cast<int64_t>(in[0].shape.rank()),
                     fmt::format("axis={} is not one of {} dimensions", axis, in[0].shape.rank())) ||
      !check.require(attrs.integer("size") <= INT32_MAX, fmt::format("size={} is too large", attrs.integer("size"))))
    return false;
  if (!with_method) return true;
  return check.has("method", "text") &&
         check.require(
             is_resample_method(attrs.text("method")),
             fmt::format("method=\"{}\" must be \"average\" or a method of tf.image.resize", attrs.text("method")));
}

TensorType resized(const TensorType& type, const Attrs& attrs) {
  TensorType result = type;
  result.shape.dims[static_cast<size_t>(attrs.integer("axis"))] = attrs.integer("size");
  return result;
}

int64_t size_along(const Shape& shape, const Attrs& attrs) {
  return shape[static_cast<size_t>(attrs.integer("axis"))];
}

Attrs with_size(Attrs attrs, int64_t size) {
  attrs.set("size", size);
  return attrs;
}

// y[o, i, :] = sum over the table's row i of weight * x[o, position, :], for the forward pass and for the gradient.
void apply_table(const ReferenceCall& call, const ResampleTable& table) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  const Around around(x, call.attrs.integer("axis"));
  const int64_t from_size = size_along(x, call.attrs), to_size = size_along(y, call.attrs);
  for_each(around.outer * to_size, around.inner * 4, [&](int64_t row) {
    const auto i = static_cast<size_t>(row % to_size);
    double* to = out(call) + row * around.inner;
    std::fill_n(to, around.inner, 0.0);
    const double* from = in(call, 0) + (row / to_size * from_size + table.begin[i]) * around.inner;
    for (int64_t tap = table.first[i]; tap < table.first[i + 1]; ++tap, from += around.inner)
      for (int64_t c = 0; c < around.inner; ++c)
        to[c] += static_cast<double>(table.weights[static_cast<size_t>(tap)]) * from[c];
  });
}

ResampleTable table_of(const ReferenceCall& call, const Shape& small, const Shape& large) {
  return resample_table(call.attrs.text("method"), size_along(small, call.attrs), size_along(large, call.attrs));
}

void reference_resample(const ReferenceCall& call) {
  apply_table(call, table_of(call, call.inputs[0].type.shape, call.outputs[0].type.shape));
}

void reference_resample_grad(const ReferenceCall& call) {
  const Shape &dy = call.inputs[0].type.shape, &dx = call.outputs[0].type.shape;
  apply_table(call, transposed(table_of(call, dx, dy), size_along(dx, call.attrs)));
}

void reference_max(const ReferenceCall& call) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  const Around around(x, call.attrs.integer("axis"));
  const int64_t from_size = size_along(x, call.attrs), to_size = size_along(y, call.attrs);
  for_each(around.outer * to_size, around.inner * 4, [&](int64_t row) {
    const AdaptiveWindow window = adaptive_window(row % to_size, from_size, to_size);
    for (int64_t c = 0; c < around.inner; ++c) {
      int64_t best = window.begin;
      const double* from = in(call, 0) + row / to_size * from_size * around.inner + c;
      for (int64_t i = window.begin + 1; i < window.end; ++i)
        if (from[i * around.inner] > from[best * around.inner]) best = i;
      out(call)[row * around.inner + c] = from[best * around.inner];
      call.outputs[1].as<int32_t>()[row * around.inner + c] = static_cast<int32_t>(best);
    }
  });
}

void reference_max_grad(const ReferenceCall& call) {
  const Shape &dy = call.inputs[0].type.shape, &dx = call.outputs[0].type.shape;
  const Around around(dx, call.attrs.integer("axis"));
  const int64_t from_size = size_along(dy, call.attrs), to_size = size_along(dx, call.attrs);
  std::fill_n(out(call), dx.elements(), 0.0);
  for_each(around.outer, from_size * around.inner, [&](int64_t o) {
    for (int64_t i = 0; i < from_size; ++i)
      for (int64_t c = 0; c < around.inner; ++c) {
        const int64_t at = (o * from_size + i) * around.inner + c;
        const int64_t position = call.inputs[1].as<int32_t>()[at];
        if (position >= 0 && position < to_size)
          out(call)[(o * to_size + position) * around.inner + c] += in(call, 0)[at];
      }
  });
}

OpDef linear_op(const std::string& name, void (*reference)(const ReferenceCall&), const std::string& adjoint) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check_attrs(check, in, attrs, true)) return check.failed();
    return check.outputs({resized(in[0], attrs)});
  };
  op.gradient = [adjoint](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1(adjoint, {g.grad()}, with_size(g.node.attrs, size_along(g.type(g.in(0)).shape, g.node.attrs)))};
  };
  op.reference = reference;
  op.flops = [](InTypes, InTypes out, const Attrs&) { return 8.0 * static_cast<double>(out[0].shape.elements()); };
  op.error_units = 16;  // up to 11 products
  return op;
}

Attrs resampling(int64_t axis, int64_t size, const std::string& method) {
  return {{"axis", axis}, {"size", size}, {"method", method}};
}

OpDef resample_op() {
  OpDef op = linear_op("resample", reference_resample, "resample_grad");
  const std::vector<std::string> fill = {"normal"};
  op.cases = {{"average", {f32({2, 7, 3, 5})}, resampling(1, 3, "average"), fill, {0}},
              {"average_up", {f32({2, 3, 4})}, resampling(1, 5, "average"), fill, {0}},
              {"average_last", {f32({3, 11})}, resampling(1, 4, "average"), fill, {0}},
              {"bicubic", {f32({2, 5, 3, 16})}, resampling(1, 15, "bicubic"), fill, {0}},
              {"bicubic_columns", {f32({2, 3, 4, 5})}, resampling(2, 8, "bicubic"), fill, {0}},
              {"one", {f32({2, 1, 3})}, resampling(1, 4, "bicubic"), fill, {0}},
              {"nearest", {f32({2, 7, 3, 4})}, resampling(1, 3, "nearest"), fill, {0}},
              {"nearest_up", {f32({2, 3, 5})}, resampling(1, 7, "nearest"), fill, {0}},
              {"bilinear", {f32({2, 9, 3, 4})}, resampling(1, 4, "bilinear"), fill, {0}},
              {"bilinear_up", {f32({2, 3, 16})}, resampling(1, 8, "bilinear"), fill, {0}},
              {"bilinear_antialias", {f32({2, 9, 4})}, resampling(1, 4, "bilinear_antialias"), fill, {0}},
              {"bicubic_antialias", {f32({2, 9, 3})}, resampling(1, 4, "bicubic_antialias"), fill, {0}},
              {"lanczos3_smaller", {f32({2, 9, 3})}, resampling(1, 4, "lanczos3"), fill, {0}},
              {"lanczos3_antialias", {f32({2, 9, 3})}, resampling(1, 4, "lanczos3_antialias"), fill, {0}},
              {"lanczos3", {f32({2, 6, 17})}, resampling(1, 12, "lanczos3"), fill, {0}},
              {"lanczos5", {f32({1, 13, 2, 4})}, resampling(1, 39, "lanczos5"), fill, {0}}};
  return op;
}

OpDef resample_grad_op() {
  OpDef op = linear_op("resample_grad", reference_resample_grad, "resample");
  const std::vector<std::string> fill = {"normal"};
  op.cases = {{"average", {f32({2, 3, 3, 5})}, resampling(1, 7, "average"), fill, {0}},
              {"average_up", {f32({2, 5, 16})}, resampling(1, 3, "average"), fill, {0}},
              {"bicubic", {f32({2, 15, 3, 4})}, resampling(1, 5, "bicubic"), fill, {0}},
              {"bilinear", {f32({2, 4, 5})}, resampling(1, 9, "bilinear"), fill, {0}},
              {"nearest", {f32({2, 2, 5})}, resampling(1, 9, "nearest"), fill, {0}},
              {"lanczos3", {f32({2, 12, 17})}, resampling(1, 6, "lanczos3"), fill, {0}},
              {"lanczos5", {f32({1, 39, 8})}, resampling(1, 13, "lanczos5"), fill, {0}}};
  return op;
}

OpDef max_op() {
  OpDef op;
  op.name = "adaptive_max_pool";
  op.recompute = Recompute::kCostly;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("adaptive_max_pool", in, attrs);
    if (!check.inputs(1) || !check.all_floats() || !check_attrs(check, in, attrs, false)) return check.failed();
    const TensorType y = resized(in[0], attrs);
    return check.outputs({y, {DType::kInt32, y.shape}});
  };
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("adaptive_max_pool_grad", {g.grad(), g.out(1)},
                     with_size(g.node.attrs, size_along(g.type(g.in(0)).shape, g.node.attrs)))};
  };
  op.reference = reference_max;
  op.error_units = 0;
  const std::vector<std::string> fill = {"distinct"};
  const auto attrs = [](int64_t axis, int64_t size) -> Attrs { return {{"axis", axis}, {"size", size}}; };
  op.cases = {{"overlapping", {f32({2, 7, 3, 5})}, attrs(1, 3), fill, {0}},
              {"columns", {f32({2, 3, 8, 16})}, attrs(2, 4), fill, {0}},
              {"up", {f32({2, 3, 4})}, attrs(1, 5), fill, {0}},
              {"last", {f32({3, 11})}, attrs(1, 1), fill, {0}}};
  return op;
}

OpDef max_grad_op() {
  OpDef op;
  op.name = "adaptive_max_pool_grad";
  op.recompute = Recompute::kCostly;
  op.infer = [](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check("adaptive_max_pool_grad", in, attrs);
    if (!check.inputs(2) || !check.floats({0}) || !check.type(1, DType::kInt32) || !check.same_shape(0, 1) ||
        !check_attrs(check, in, attrs, false))
      return check.failed();
    return check.outputs({resized(in[0], attrs)});
  };
  op.reference = reference_max_grad;
  const auto attrs = [](int64_t axis, int64_t size) -> Attrs { return {{"axis", axis}, {"size", size}}; };
  // Each index must lie in its window, so there is only one window. (The gradient of adaptive_max_pool covers others.)
  op.cases = {{"row", {f32({2, 1, 5}), i32({2, 1, 5})}, attrs(1, 7), {"normal", "labels:7"}, {}},
              {"columns", {f32({2, 3, 1, 16}), i32({2, 3, 1, 16})}, attrs(2, 4), {"normal", "labels:4"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> resample_ops() {
  return {resample_op(), resample_grad_op(), max_op(), max_grad_op()};
}

}  // namespace plimsoll::engine
