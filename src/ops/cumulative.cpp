// cumsum and cumprod along an axis. `reverse` runs from the last element to the first, `exclusive` leaves out the
// element itself.
#include "ops/build.h"
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.all_floats() || !check.integer("axis", 0) || !check.optional_flag("reverse") ||
      !check.optional_flag("exclusive"))
    return check.failed();
  check.require(attrs.integer("axis") < static_cast<int64_t>(in[0].shape.rank()),
                fmt::format("axis={} is not one of {} dimensions", attrs.integer("axis"), in[0].shape.rank()));
  return check.outputs({in[0]});
}

ValueId cumulative(const GradientCall& g, const char* op, ValueId x, bool turned) {
  const Attrs& attrs = g.node.attrs;
  return g.b.add1(op, {x},
                  {{"axis", attrs.integer("axis")},
                   {"reverse", attrs.flag("reverse") != turned},
                   {"exclusive", attrs.flag("exclusive")}});
}

// TensorFlow's: the sum of y * dy over the elements that x is part of, divided by x; 0 where x is 0.
std::vector<ValueId> prod_gradient(const GradientCall& g) {
  if (!g.wants(0)) return {kNone};
  const ValueId sums = cumulative(g, "cumsum", g.b.add1("multiply", {g.out(0), g.grad()}), true);
  const ValueId zeros = constant_like(g.b, g.in(0), 0);
  const ValueId is_zero = g.b.add1("equal", {g.in(0), zeros});
  return {g.b.add1("select", {is_zero, zeros, g.b.add1("divide", {sums, g.in(0)})})};
}

template <typename F>
void scan(const ReferenceCall& call, double start, F combine) {
  const AroundAxis x(call.inputs[0].type.shape, static_cast<size_t>(call.attrs.integer("axis")));
  const bool reverse = call.attrs.flag("reverse"), exclusive = call.attrs.flag("exclusive");
  for_each(x.outer * x.inner, x.size, [&](int64_t i) {
    const int64_t base = i / x.inner * x.size * x.inner + i % x.inner;
    double total = start;
    for (int64_t k = 0; k < x.size; ++k) {
      const int64_t at = base + (reverse ? x.size - 1 - k : k) * x.inner;
      const double after = combine(total, in(call, 0)[at]);
      out(call)[at] = exclusive ? total : after;
      total = after;
    }
  });
}

OpDef make(const std::string& name, const char* fill) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCheap;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer(name, in, attrs); };
  op.error_units = 32;
  const auto along = [](int64_t axis, bool reverse, bool exclusive) {
    return Attrs{{"axis", axis}, {"reverse", reverse}, {"exclusive", exclusive}};
  };
  op.cases = {{"last", {f32({4, 11})}, along(1, false, false), {fill}, {0}},
              {"middle", {f32({2, 5, 3})}, along(1, false, true), {fill}, {0}},
              {"reverse", {f32({3, 7})}, along(1, true, false), {fill}, {0}},
              {"reverse_exclusive", {f32({6, 5})}, along(0, true, true), {fill}, {0}},
              {"one", {f32({5, 1})}, along(1, false, true), {fill}, {0}}};
  if (name == "cumsum") {
    op.cases.push_back({"long", {f32({3, 3000})}, along(1, false, false), {"normal"}, {}});
    op.cases.push_back({"long_reverse", {f32({2, 2500})}, along(1, true, true), {"normal"}, {}});
    op.cases.push_back({"tall", {f32({1200, 40})}, along(0, false, false), {"normal"}, {}});
  }
  return op;
}

}  // namespace

std::vector<OpDef> cumulative_ops() {
  OpDef sum = make("cumsum", "normal"), product = make("cumprod", "positive");
  sum.reference = [](const ReferenceCall& call) { scan(call, 0, [](double a, double b) { return a + b; }); };
  sum.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {cumulative(g, "cumsum", g.grad(), true)};
  };
  product.reference = [](const ReferenceCall& call) { scan(call, 1, [](double a, double b) { return a * b; }); };
  product.gradient = prod_gradient;
  return {sum, product};
}

}  // namespace plimsoll::engine
