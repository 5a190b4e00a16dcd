// Reductions over any axes but the batch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "model/operation.h"
#include "model/operation_axes.h"

namespace plimsoll::engine {

std::vector<size_t> GivenAxes::axes(OpWriter& w, size_t rank) const {
  if (!given && !w.has_batch()) {
    std::vector<size_t> all(rank);
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  if (!given) {
    w.refuse("axis=None, which includes the batch: it would couple the samples");
    return {};
  }
  std::vector<size_t> list;
  for (int64_t one : *given) {
    const auto at = w.axis(one, rank);
    if (!at) return {};
    list.push_back(*at);
  }
  std::sort(list.begin(), list.end());
  if (std::adjacent_find(list.begin(), list.end()) != list.end())
    w.fail(fmt::format("axis {} is listed twice", fmt::join(*given, ", ")));
  return list;
}

GivenAxes read_reduction(OpReader& r) {
  return {r.operand("x", 0), r.axes("axis"), r.config.flag("keepdims", false)};
}

namespace {

using Reduce = Operand (*)(OpWriter&, const Operand&, const std::vector<size_t>&, bool);

enum class Result { kNumbers, kFloats, kTruths, kIntegers };

OpBody reduction_with(OpReader& r, Result result, Reduce reduce) {
  const GivenAxes reduction = read_reduction(r);
  return [=](OpWriter& w) -> Operands {
    const Operand in = reduction.x.get(w);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    Operand made = reduce(w, w.floats(result == Result::kTruths ? w.truths(in) : in), axes, reduction.keep);
    if (result == Result::kTruths) made.kind = TensorKind::kTruth;
    const bool whole = result == Result::kIntegers || (result == Result::kNumbers && in.kind != TensorKind::kFloat);
    return {whole ? w.integers(made) : made};
  };
}

Operand sum(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.sum(x, axes, keep);
}
Operand mean(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.mean(x, axes, keep);
}
Operand largest(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.reduce("reduce_max", x, axes, keep);
}
Operand smallest(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.reduce("reduce_min", x, axes, keep);
}
Operand range(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.subtract(largest(w, x, axes, keep), smallest(w, x, axes, keep));
}
Operand deviation(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  return w.unary("sqrt", variance(w, x, axes, keep));
}

// The largest element is subtracted first, and gets no gradient of its own.
Operand log_sum_exp(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  const Operand top = w.unary("stop_gradient", largest(w, x, axes, true));
  const Operand total = w.sum(w.unary("exp", w.subtract(x, top)), axes, true);
  const Operand made = w.add(w.unary("log", total), top);
  return keep ? made : w.without(made, axes);
}

OpBody product(OpReader& r) {
  const auto kind = r.kind("dtype");
  const OpBody body = reduction_with(r, Result::kNumbers,
                                     [](OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
                                       return w.reduce("reduce_prod", x, axes, keep);
                                     });
  return [=](OpWriter& w) -> Operands {
    const Operands made = body(w);
    return kind && !w.failed() ? Operands{w.as_kind(made[0], *kind)} : made;
  };
}

// Max and Min. Truth values stay truth values.
OpBody extreme(OpReader& r, Reduce reduce, const char* with_initial) {
  const GivenAxes reduction = read_reduction(r);
  const auto initial = r.config.optional_real("initial");
  return [=](OpWriter& w) -> Operands {
    const Operand in = reduction.x.get(w);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    Operand made = reduce(w, w.floats(in), axes, reduction.keep);
    if (initial) made = w.binary(with_initial, made, w.number(*initial));
    made.kind = in.kind == TensorKind::kTruth ? TensorKind::kTruth : TensorKind::kFloat;
    return {in.kind == TensorKind::kInteger ? w.integers(made) : made};
  };
}

// With `skipped`, NaN counts as that, and the position is -1 where all elements are NaN.
OpBody position(OpReader& r, const char* op, std::optional<double> skipped = {}) {
  const GivenAxes reduction = read_reduction(r);
  return [=](OpWriter& w) -> Operands {
    const Operand in = reduction.x.get(w);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (!w.failed() && axes.size() != 1) w.fail("it takes one axis");
    if (w.failed()) return {in};
    const Operand numbers = w.floats(in), nan = w.unary("is_nan", numbers);
    Operand made = skipped ? w.select(nan, w.number(*skipped), numbers) : numbers;
    made.id = w.nodes(op, {made.id}, {{"axis", static_cast<int64_t>(axes[0])}})[0];
    made.kind = TensorKind::kInteger;
    if (skipped) {
      const Operand none = w.reduce("reduce_min", nan, axes, true);
      made = w.integers(w.select(none, w.number(-1), w.floats(made, w.dtype(numbers))));
    }
    return {reduction.keep ? made : w.without(made, axes)};
  };
}

OpBody count_nonzero(OpReader& r) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), false};
  return [=](OpWriter& w) -> Operands {
    const Operand in = reduction.x.get(w);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    // Half precision counts exactly up to 256 only.
    return {w.integers(w.sum(w.floats(w.truths(in), w.call().precision), axes, false))};
  };
}

constexpr std::array kOperations = {
    OpClass{"Sum", [](OpReader& r) { return reduction_with(r, Result::kNumbers, sum); }},
    OpClass{"Mean", [](OpReader& r) { return reduction_with(r, Result::kFloats, mean); }},
    OpClass{"Var", [](OpReader& r) { return reduction_with(r, Result::kFloats, variance); }},
    OpClass{"Std", [](OpReader& r) { return reduction_with(r, Result::kFloats, deviation); }},
    OpClass{"Prod", product},
    OpClass{"Max", [](OpReader& r) { return extreme(r, largest, "maximum"); }},
    OpClass{"Amax", [](OpReader& r) { return extreme(r, largest, "maximum"); }},
    OpClass{"Min", [](OpReader& r) { return extreme(r, smallest, "minimum"); }},
    OpClass{"Amin", [](OpReader& r) { return extreme(r, smallest, "minimum"); }},
    OpClass{"Ptp", [](OpReader& r) { return reduction_with(r, Result::kNumbers, range); }},
    OpClass{"Any", [](OpReader& r) { return reduction_with(r, Result::kTruths, largest); }},
    OpClass{"All", [](OpReader& r) { return reduction_with(r, Result::kTruths, smallest); }},
    OpClass{"Logsumexp", [](OpReader& r) { return reduction_with(r, Result::kFloats, log_sum_exp); }},
    OpClass{"Argmax", [](OpReader& r) { return position(r, "arg_max"); }},
    OpClass{"Argmin", [](OpReader& r) { return position(r, "arg_min"); }},
    OpClass{"Nanargmax", [](OpReader& r) { return position(r, "arg_max", std::numeric_limits<float>::lowest()); }},
    OpClass{"Nanargmin", [](OpReader& r) { return position(r, "arg_min", std::numeric_limits<float>::max()); }},
    OpClass{"CountNonzero", count_nonzero},
};

}  // namespace

Operand variance(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep) {
  const Operand centred = w.subtract(x, w.mean(x, axes, true));
  return w.mean(w.unary("square", centred), axes, keep);
}

std::span<const OpClass> reduction_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
