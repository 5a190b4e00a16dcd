// Pooling over whole images: global_avg_pool2d, and global_max_pool2d, which also returns the position of each maximum.
#include "ops/families.h"
#include "ops/pooling.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_forward(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.rank(0, 4)) return check.failed();
  const Shape y{in[0].shape[0], in[0].shape[3]};
  if (!with_index) return check.outputs({{in[0].dtype, y}});
  return check.outputs({{in[0].dtype, y}, {DType::kInt32, y}});
}

Result<Types> infer_grad(std::string_view name, bool with_index, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(with_index ? 2 : 1) || !check.floats({0}) || !check.rank(0, 2) || !check.list("input_size", 2, 1))
    return check.failed();
  if (with_index && (!check.type(1, DType::kInt32) || !check.same_shape(0, 1))) return check.failed();
  const auto& size = attrs.list("input_size");
  return check.outputs({{in[0].dtype, Shape{in[0].shape[0], size[0], size[1], in[0].shape[1]}}});
}

struct Images {
  int64_t n, pixels, c;
  explicit Images(const Shape& s) : n(s[0]), pixels(s[1] * s[2]), c(s[3]) {}
};

void reference_avg(const ReferenceCall& call) {
  const Images x(call.inputs[0].type.shape);
  for_each(x.n, x.pixels * x.c, [&](int64_t n) {
    double* y = out(call) + n * x.c;
    std::fill_n(y, x.c, 0.0);
    for (int64_t p = 0; p < x.pixels; ++p)
      for (int64_t c = 0; c < x.c; ++c) y[c] += in(call, 0)[(n * x.pixels + p) * x.c + c];
    for (int64_t c = 0; c < x.c; ++c) y[c] /= static_cast<double>(x.pixels);
  });
}

void reference_avg_grad(const ReferenceCall& call) {
  const Images x(call.outputs[0].type.shape);
  for_each(x.n * x.pixels, x.c, [&](int64_t p) {
    for (int64_t c = 0; c < x.c; ++c)
      out(call)[p * x.c + c] = in(call, 0)[p / x.pixels * x.c + c] / static_cast<double>(x.pixels);
  });
}

void reference_max(const ReferenceCall& call) {
  const Images x(call.inputs[0].type.shape);
  for_each(x.n, x.pixels * x.c, [&](int64_t n) {
    for (int64_t c = 0; c < x.c; ++c) {
      const double* from = in(call, 0) + n * x.pixels * x.c + c;
      int64_t best = 0;
      for (int64_t p = 1; p < x.pixels; ++p)
        if (from[p * x.c] > from[best * x.c]) best = p;
      out(call)[n * x.c + c] = from[best * x.c];
      call.outputs[1].as<int32_t>()[n * x.c + c] = static_cast<int32_t>(best);
    }
  });
}

void reference_max_grad(const ReferenceCall& call) {
  const Images x(call.outputs[0].type.shape);
  for_each(x.n * x.pixels, x.c, [&](int64_t p) {
    for (int64_t c = 0; c < x.c; ++c) {
      const int64_t at = p / x.pixels * x.c + c;
      out(call)[p * x.c + c] = call.inputs[1].as<int32_t>()[at] == p % x.pixels ? in(call, 0)[at] : 0.0;
    }
  });
}

OpDef forward_op(const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, infer_forward, reference);
  op.gradient = pooling_gradient(name, with_index);
  op.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  op.error_units = with_index ? 0 : 8;
  op.cases = {{"image", {f32({2, 3, 4, 5})}, {}, {"distinct"}, {0}},
              {"wide", {f32({1, 7, 7, 33})}, {}, {"distinct"}, {0}},
              {"pixel", {f32({3, 1, 1, 17})}, {}, {"distinct"}, {0}}};
  return op;
}

OpDef grad_op(const std::string& name, bool with_index, void (*reference)(const ReferenceCall&)) {
  OpDef op = pooling_op(name, with_index, infer_grad, reference);
  op.recompute = Recompute::kCheap;
  op.error_units = 2;
  for (const auto& [label, n, c, h, w] :
       {std::tuple{"image", 2, 5, 3, 4}, std::tuple{"wide", 1, 33, 7, 7}, std::tuple{"pixel", 3, 17, 1, 1}}) {
    std::optional<PoolingIndex> index;
    if (with_index) index = PoolingIndex{DType::kInt32, fmt::format("labels:{}", h * w)};
    op.cases.push_back(pooling_grad_case(label, f32({n, c}), {{"input_size", Ints{h, w}}}, index));
  }
  return op;
}

}  // namespace

std::vector<OpDef> global_pool2d_ops() {
  return {forward_op("global_avg_pool2d", false, reference_avg),
          grad_op("global_avg_pool2d_grad", false, reference_avg_grad),
          forward_op("global_max_pool2d", true, reference_max),
          grad_op("global_max_pool2d_grad", true, reference_max_grad)};
}

}  // namespace plimsoll::engine
