// Reductions over any axes, which stay as dimensions of size 1: the largest and the smallest element, the product, and
// the index of the largest or smallest element along one axis. (Sums are reduce_to.)
#include <cmath>
#include <limits>

#include "ops/build.h"
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_reduce(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.has("axes", "list") ||
      !check.list("axes", attrs.list("axes").size(), 0))
    return check.failed();
  Shape y = in[0].shape;
  int64_t before = -1;
  for (int64_t axis : attrs.list("axes")) {
    if (!check.require(
            axis > before && axis < static_cast<int64_t>(y.rank()),
            fmt::format("axes=[{}] must be sorted dimensions of the input", fmt::join(attrs.list("axes"), ","))))
      return check.failed();
    y.dims[static_cast<size_t>(axis)] = 1;
    before = axis;
  }
  return check.outputs({{in[0].dtype, std::move(y)}});
}

Result<Types> infer_arg(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.integer("axis", 0) ||
      !check.require(attrs.integer("axis") < static_cast<int64_t>(in[0].shape.rank()),
                     fmt::format("axis={} is not one of {} dimensions", attrs.integer("axis"), in[0].shape.rank())))
    return check.failed();
  Shape y = in[0].shape;
  check.require(y[static_cast<size_t>(attrs.integer("axis"))] <= std::numeric_limits<int32_t>::max(),
                "the axis has more elements than an i32 can count");
  y.dims[static_cast<size_t>(attrs.integer("axis"))] = 1;
  return check.outputs({{DType::kInt32, std::move(y)}});
}

// The gradient is shared equally among the elements that are the largest (or smallest), as TensorFlow does.
std::vector<ValueId> extreme_gradient(const GradientCall& g) {
  if (!g.wants(0)) return {kNone};
  const ValueId chosen = g.b.add1("equal", {g.in(0), broadcast_to(g.b, g.out(0), g.type(g.in(0)).shape)});
  const ValueId ties = g.b.add1("reduce_to", {chosen}, {{"shape", g.type(g.out(0)).shape.dims}});
  const ValueId share = g.b.add1("divide", {g.grad(), ties});
  return {g.b.add1("multiply", {chosen, broadcast_to(g.b, share, g.type(g.in(0)).shape)})};
}

// The product of all other elements is the product of those before and of those behind, which is right for zeros too.
std::vector<ValueId> prod_gradient(const GradientCall& g) {
  if (!g.wants(0)) return {kNone};
  const Shape x = g.type(g.in(0)).shape;
  const auto& axes = g.node.attrs.list("axes");
  Ints perm;
  for (int64_t d = 0; d < static_cast<int64_t>(x.rank()); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) perm.push_back(d);
  int64_t kept = 1;
  for (int64_t axis : perm) kept *= x[static_cast<size_t>(axis)];
  perm.insert(perm.end(), axes.begin(), axes.end());
  const int64_t reduced = x.elements() / kept;
  const ValueId moved = g.b.add1("transpose", {g.in(0)}, {{"perm", perm}});
  const ValueId rows = g.b.add1("reshape", {moved}, {{"shape", Ints{kept, reduced}}});
  const auto product = [&](bool reverse) {
    return g.b.add1("cumprod", {rows}, {{"axis", int64_t{1}}, {"reverse", reverse}, {"exclusive", true}});
  };
  const ValueId others = g.b.add1("multiply", {product(false), product(true)});
  const ValueId wide = g.b.add1("reshape", {others}, {{"shape", g.type(moved).shape.dims}});
  const ValueId back = g.b.add1("transpose", {wide}, {{"perm", inverse_permutation(perm)}});
  return {g.b.add1("multiply", {back, broadcast_to(g.b, g.grad(), g.type(g.in(0)).shape)})};
}

// Combines all elements of each reduced set, in order. A NaN among them makes the result a NaN.
template <typename F>
void reduce(const ReferenceCall& call, double start, F combine) {
  const Shape &x = call.inputs[0].type.shape, &y = call.outputs[0].type.shape;
  std::fill_n(out(call), y.elements(), start);
  for_each_element(broadcast_view(y, x), [&](int64_t i, int64_t at) {
    double& result = out(call)[at];
    result = combine(result, in(call, 0)[i]);
  });
}

template <typename F>
void find(const ReferenceCall& call, F better) {
  const AroundAxis x(call.inputs[0].type.shape, static_cast<size_t>(call.attrs.integer("axis")));
  auto* index = call.outputs[0].as<int32_t>();
  for_each(x.outer * x.inner, x.size, [&](int64_t i) {
    const double* from = in(call, 0) + i / x.inner * x.size * x.inner + i % x.inner;
    int64_t best = 0;
    for (int64_t k = 1; k < x.size; ++k)
      if (better(from[k * x.inner], from[best * x.inner])) best = k;
    index[i] = static_cast<int32_t>(best);
  });
}

OpDef reduce_op(const std::string& name) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer_reduce(name, in, attrs); };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  const auto axes = [](Ints list) { return Attrs{{"axes", std::move(list)}}; };
  op.cases = {{"last", {f32({5, 4, 11})}, axes({2}), {"distinct"}, {0}},
              {"first", {f32({13, 3, 7})}, axes({0}), {"distinct"}, {0}},
              {"spatial", {f32({2, 5, 3, 20})}, axes({1, 2}), {"distinct"}, {0}},
              {"alternate", {f32({3, 2, 4, 3})}, axes({0, 2}), {"distinct"}, {0}},
              {"outer_and_last", {f32({3, 5, 4})}, axes({0, 2}), {"distinct"}, {0}},
              {"none", {f32({3, 4})}, axes({}), {"distinct"}, {0}}};
  if (name != "reduce_prod") {
    op.cases.push_back({"all", {f32({3, 4})}, axes({0, 1}), {"distinct"}, {0}});
    op.cases.push_back({"long", {f32({2, 5000})}, axes({1}), {"normal"}, {}});
    op.cases.push_back({"tall", {f32({2, 3000, 9})}, axes({1}), {"normal"}, {}});
    op.cases.push_back({"many", {f32({70, 4, 65})}, axes({1}), {"normal"}, {}});
    op.gradient = extreme_gradient;
    op.error_units = 0;
  } else {
    // Few numbers, because the product must not be below the smallest normal number of half precision.
    op.cases.push_back({"all", {f32({2, 3})}, axes({0, 1}), {"positive"}, {0}});
    op.cases.push_back({"ones", {f32({2, 3000})}, axes({1}), {"value:1"}, {}});
    op.gradient = prod_gradient;
    op.error_units = 32;
  }
  return op;
}

OpDef arg_op(const std::string& name) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer_arg(name, in, attrs); };
  op.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  const auto axis = [](int64_t a) { return Attrs{{"axis", a}}; };
  op.cases = {{"last", {f32({5, 11})}, axis(1), {"distinct"}, {}},
              {"ties", {f32({6, 40})}, axis(1), {"integers:3"}, {}},
              {"middle", {f32({3, 9, 7})}, axis(1), {"integers:5"}, {}},
              {"long", {f32({3, 2000})}, axis(1), {"integers:50"}, {}},
              {"one", {f32({4, 1})}, axis(1), {"normal"}, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> reduce_ops() {
  OpDef largest = reduce_op("reduce_max"), smallest = reduce_op("reduce_min"), product = reduce_op("reduce_prod");
  largest.reference = [](const ReferenceCall& call) {
    reduce(call, -INFINITY, [](double a, double b) { return b > a || std::isnan(b) ? b : a; });
  };
  smallest.reference = [](const ReferenceCall& call) {
    reduce(call, INFINITY, [](double a, double b) { return b < a || std::isnan(b) ? b : a; });
  };
  product.reference = [](const ReferenceCall& call) { reduce(call, 1, [](double a, double b) { return a * b; }); };
  OpDef arg_max = arg_op("arg_max"), arg_min = arg_op("arg_min");
  arg_max.reference = [](const ReferenceCall& call) { find(call, std::greater<>()); };
  arg_min.reference = [](const ReferenceCall& call) { find(call, std::less<>()); };
  return {largest, smallest, product, arg_max, arg_min};
}

}  // namespace plimsoll::engine
