// sort and top_k along the last axis, both with the indices of what they took. Equal elements keep their order; NaNs
// come last in either direction.
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(const std::string& name, bool top, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.optional_flag("descending") ||
      !check.require(in[0].shape.rank() > 0 && in[0].shape.back() <= std::numeric_limits<int32_t>::max(),
                     "needs a dimension of at most 2^31 - 1 elements to sort") ||
      (top && !check.integer("k", 1)))
    return check.failed();
  Shape y = in[0].shape;
  if (top) {
    check.require(attrs.integer("k") <= y.back(),
                  fmt::format("k={} is more than the {} elements", attrs.integer("k"), y.back()));
    y.dims.back() = attrs.integer("k");
  }
  return check.outputs({{in[0].dtype, y}, {DType::kInt32, y}});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  if (!g.wants(0) || g.grad() == kNone) return {kNone};
  const Shape& x = g.type(g.in(0)).shape;
  return {g.b.add1("take_along_grad", {g.grad(), g.out(1)},
                   {{"axis", static_cast<int64_t>(x.rank()) - 1}, {"size", x.back()}})};
}

void sort_rows(const ReferenceCall& call, bool descending) {
  const int64_t n = call.inputs[0].type.shape.back(), k = call.outputs[0].type.shape.back();
  for_each(rows_of(call.inputs[0].type.shape), 16 * n, [&](int64_t row) {
    const double* x = in(call, 0) + row * n;
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if (std::isnan(x[a]) || std::isnan(x[b])) return !std::isnan(x[a]);
      return descending ? x[a] > x[b] : x[a] < x[b];
    });
    for (int64_t i = 0; i < k; ++i) {
      call.outputs[1].as<int32_t>()[row * k + i] = order[static_cast<size_t>(i)];
      out(call)[row * k + i] = x[order[static_cast<size_t>(i)]];
    }
  });
}

OpDef make(const std::string& name, bool top) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCostly;
  op.infer = [name, top](InTypes in, const Attrs& attrs) { return infer(name, top, in, attrs); };
  op.gradient = gradient;
  op.reference = [top](const ReferenceCall& call) { sort_rows(call, top || call.attrs.flag("descending")); };
  op.flops = [](InTypes in, InTypes, const Attrs&) {
    const auto n = static_cast<double>(in[0].shape.back());
    return static_cast<double>(in[0].shape.elements()) * (1 + std::log2(n));
  };
  op.error_units = 0;
  return op;
}

}  // namespace

std::vector<OpDef> sort_ops() {
  OpDef sort = make("sort", false), top = make("top_k", true);
  const auto direction = [](bool descending) { return Attrs{{"descending", descending}}; };
  sort.cases = {{"ascending", {f32({4, 9})}, direction(false), {"distinct"}, {0}},
                {"descending", {f32({2, 3, 17})}, direction(true), {"distinct"}, {0}},
                {"ties", {f32({5, 40})}, direction(false), {"integers:3"}, {}},
                {"ties_descending", {f32({3, 70})}, direction(true), {"integers:3"}, {}},
                {"long", {f32({3, 3000})}, direction(false), {"integers:900"}, {}},
                {"longer", {f32({1, 20000})}, direction(true), {"normal"}, {}},
                {"one", {f32({3, 1})}, direction(false), {"normal"}, {0}}};
  const auto k = [](int64_t count) { return Attrs{{"k", count}}; };
  top.cases = {{"three", {f32({4, 11})}, k(3), {"distinct"}, {0}},
               {"ties", {f32({5, 30})}, k(7), {"integers:3"}, {}},
               {"all", {f32({2, 6})}, k(6), {"distinct"}, {0}},
               {"one", {f32({3, 1000})}, k(1), {"integers:90"}, {}},
               {"long", {f32({2, 5000})}, k(100), {"integers:900"}, {}}};
  return {sort, top};
}

}  // namespace plimsoll::engine
