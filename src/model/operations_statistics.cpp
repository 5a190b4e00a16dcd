// Statistics over axes: norms, averages with weights, moments, quantiles, and the forms that skip NaN.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/operation.h"
#include "model/operation_axes.h"

namespace plimsoll::engine {

AxesAtEnd::AxesAtEnd(OpWriter& w, const Operand& x, const std::vector<size_t>& axes) {
  const std::vector<int64_t> from = w.dims(x);
  int64_t size = 1;
  for (size_t d = 0; d < from.size(); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) perm.push_back(static_cast<int64_t>(d));
  std::vector<int64_t> to;
  for (int64_t p : perm) to.push_back(from[static_cast<size_t>(p)]);
  moved = to;
  for (size_t d : axes) {
    perm.push_back(static_cast<int64_t>(d));
    moved.push_back(from[d]);
    size *= from[d];
  }
  to.push_back(size);
  flat = w.reshape(w.transpose(x, perm), to);
}

Operand AxesAtEnd::undo(OpWriter& w, const Operand& y) const {
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return w.transpose(w.reshape(y, moved), back);
}

Operands sorted(OpWriter& w, const Operand& x, bool descending) {
  Operand values = w.floats(x);
  const std::vector<ValueId> made = w.nodes("sort", {values.id}, {{"descending", descending}});
  values.id = made[0];
  Operand index = values;
  index.id = made.size() > 1 ? made[1] : made[0];
  index.kind = TensorKind::kInteger;
  return {x.kind == TensorKind::kInteger ? w.integers(values) : values, index};
}

namespace {

// keras.ops.norm: of vectors along one axis, and the Frobenius norm of matrices.
OpBody norm(OpReader& r) {
  const GivenAxes reduction = read_reduction(r);
  const Json* order = r.config.value("ord");
  const size_t count = reduction.given ? reduction.given->size() : 0;
  double p = 2;
  if (order && order->is_string() && order->get<std::string>() == "fro" && count == 2)
    p = 2;
  else if (order && count == 1 && as_number(*order))
    p = *as_number(*order);
  else if (order)
    r.refuse(fmt::format("ord={} over {} axes", shown(*order), count));
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(reduction.x.get(w));
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (!w.failed() && axes.size() > 2) w.fail("it takes one or two axes");
    if (w.failed()) return {in};
    if (p == 2) return {w.unary("sqrt", w.sum(w.unary("square", in), axes, reduction.keep))};
    if (p == 0) return {w.sum(w.floats(w.truths(in)), axes, reduction.keep)};
    const Operand size = w.unary("abs", in);
    if (p == 1) return {w.sum(size, axes, reduction.keep)};
    return {w.power(w.sum(w.power(size, w.number(p)), axes, reduction.keep), w.number(1 / p))};
  };
}

OpBody average(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto weights = r.optional_operand("weights", 1);
  const GivenAxes reduction{x, r.axes("axis"), false};
  return [=](OpWriter& w) -> Operands {
    const Operand first = x.get(w);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(first));
    if (w.failed()) return {first};
    if (!weights) return {w.mean(w.floats(first), axes, false)};
    Operands both = w.joint_floats(std::array{first, weights->get(w)});
    const std::vector<int64_t> from = w.dims(both[0]);
    if (w.rank(both[1]) != from.size()) {  // a vector of weights along the axis
      if (both[1].batched || axes.size() != 1 || w.rank(both[1]) != 1 || w.dims(both[1])[0] != from[axes[0]])
        w.fail("its weights must be a vector along the axis, or have the shape of x");
      if (w.failed()) return {first};
      std::vector<int64_t> along(from.size(), 1);
      along[axes[0]] = from[axes[0]];
      both[1] = w.reshape(both[1], along);
    }
    const Operand total = w.sum(w.multiply(both[0], both[1]), axes, false);
    if (w.failed()) return {first};
    return {w.divide(total, w.sum(both[1], axes, false))};
  };
}

OpBody moments(OpReader& r) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axes"), r.config.flag("keepdims", false)};
  r.config.only("synchronized", {false});
  r.outputs = 2;
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(reduction.x.get(w));
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in, in};
    return {w.mean(in, axes, reduction.keep), variance(w, in, axes, reduction.keep)};
  };
}

// The q-quantile along axes: between two neighbours of the sorted elements.
OpBody quantile_at(OpReader& r, std::optional<double> q) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), r.config.flag("keepdims", false)};
  if (!q || *q < 0 || *q > 1) {
    r.refuse("q that is not one number of its range");
    return nullptr;
  }
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(reduction.x.get(w));
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    const AxesAtEnd end(w, in, axes);
    const std::vector<int64_t> from = w.dims(end.flat);
    const size_t last = from.size() - 1;
    const Operand order = sorted(w, end.flat, false)[0];
    const double exact = static_cast<double>(from[last] - 1) * *q;
    const auto at = [&](double index) { return w.slice(order, last, static_cast<int64_t>(index), 1); };
    const double low = std::max(std::ceil(exact) - 1, 0.0);
    const double high = std::min(low + 1, static_cast<double>(from[last] - 1));
    const double fraction = high - exact;
    Operand made = w.add(w.affine(at(high), 1 - fraction, 0), w.affine(at(low), fraction, 0));
    std::vector<int64_t> to = w.dims(in);
    for (size_t d : axes) to[d] = 1;
    made = w.reshape(made, to);
    return {reduction.keep ? made : w.without(made, axes)};
  };
}

OpBody quantile(OpReader& r, double scale) {
  const Json* value = r.arguments.value("q", 1);
  const auto constant = value ? read_constant(*value) : std::nullopt;
  std::optional<double> q;
  if (constant && constant->shape.rank() == 0) q = constant->values[0] * scale;
  r.config.choice("method", {"linear"}, "linear");  // Keras 3.15.1 ignores all others in a layer
  return quantile_at(r, q);
}

// What a NaN is replaced by, and what is computed then.
enum class Skipping { kSum, kMean, kMax, kMin, kProduct, kVariance, kDeviation };

OpBody skipping_nan(OpReader& r, Skipping what) {
  const GivenAxes reduction = read_reduction(r);
  return [=](OpWriter& w) -> Operands {
    const Operand given = reduction.x.get(w);
    const Operand in = w.floats(given);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    const bool keep = reduction.keep;
    const Operand bad = w.unary("is_nan", in), good = w.invert(bad);
    const auto replaced = [&](double value) { return w.select(bad, w.number(value), in); };
    // NaN, which is 0/0, where all elements are NaN.
    const auto none = [&](const Operand& made) {
      const Operand all = w.reduce("reduce_min", bad, axes, keep);
      return w.add(made, w.divide(w.affine(all, 0, 0), w.invert(all)));
    };
    const double most = std::numeric_limits<float>::max();
    Operand made;
    switch (what) {
      case Skipping::kSum:
        made = w.sum(replaced(0), axes, keep);
        break;
      case Skipping::kProduct:
        made = w.reduce("reduce_prod", replaced(1), axes, keep);
        break;
      case Skipping::kMax:
        made = none(w.reduce("reduce_max", replaced(-most), axes, keep));
        break;
      case Skipping::kMin:
        made = none(w.reduce("reduce_min", replaced(most), axes, keep));
        break;
      case Skipping::kMean:
        made = w.divide(w.sum(replaced(0), axes, keep), w.sum(good, axes, keep));
        break;
      case Skipping::kVariance:
      case Skipping::kDeviation: {
        const Operand mean = w.divide(w.sum(replaced(0), axes, true), w.sum(good, axes, true));
        const Operand centred = w.select(bad, w.number(0), w.subtract(replaced(0), mean));
        made = w.divide(w.sum(w.unary("square", centred), axes, keep), w.sum(good, axes, keep));
        if (what == Skipping::kDeviation) made = w.unary("sqrt", made);
      }
    }
    const bool numbers =
        what == Skipping::kSum || what == Skipping::kProduct || what == Skipping::kMax || what == Skipping::kMin;
    return {numbers && given.kind == TensorKind::kInteger ? w.integers(made) : made};
  };
}

// The integral by the trapezoidal rule, with a constant distance of samples.
OpBody trapezoid(OpReader& r) {
  const OpArgument y = r.operand("y", 0);
  r.config.only("x");
  const double step = r.config.real("dx", 1);
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(y.get(w));
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return {in};
    const int64_t size = w.dims(in)[*at];
    if (size < 2) w.fail(fmt::format("an axis of {} element has no intervals", size));
    if (w.failed()) return {in};
    const Operand pairs = w.add(w.slice(in, *at, 1, size - 1), w.slice(in, *at, 0, size - 1));
    return {w.affine(w.sum(pairs, {*at}, false), step / 2, 0)};
  };
}

constexpr std::array kOperations = {
    OpClass{"Norm", norm},
    OpClass{"Average", average},
    OpClass{"Moments", moments},
    OpClass{"Median", [](OpReader& r) { return quantile_at(r, 0.5); }},
    OpClass{"Quantile", [](OpReader& r) { return quantile(r, 1); }},
    OpClass{"Percentile", [](OpReader& r) { return quantile(r, 0.01); }},
    OpClass{"Trapezoid", trapezoid},
    OpClass{"Nansum", [](OpReader& r) { return skipping_nan(r, Skipping::kSum); }},
    OpClass{"Nanmean", [](OpReader& r) { return skipping_nan(r, Skipping::kMean); }},
    OpClass{"Nanmax", [](OpReader& r) { return skipping_nan(r, Skipping::kMax); }},
    OpClass{"Nanmin", [](OpReader& r) { return skipping_nan(r, Skipping::kMin); }},
    OpClass{"Nanprod", [](OpReader& r) { return skipping_nan(r, Skipping::kProduct); }},
    OpClass{"Nanvar", [](OpReader& r) { return skipping_nan(r, Skipping::kVariance); }},
    OpClass{"Nanstd", [](OpReader& r) { return skipping_nan(r, Skipping::kDeviation); }},
};

}  // namespace

std::span<const OpClass> statistics_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
