// Operations along one axis, and on the diagonals of matrices.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/operation.h"
#include "model/operation_axes.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

OpBody sort(OpReader& r, bool positions) {
  const OpArgument x = r.operand("x", 0);
  const auto axis = r.axes("axis");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (!axis || axis->size() != 1) w.refuse("axis=None, which includes the batch");
    const auto at = w.failed() ? std::nullopt : w.axis((*axis)[0], w.rank(in));
    if (!at) return {in};
    const AxesAtEnd end(w, in, {*at});
    return {end.undo(w, sorted(w, end.flat, false)[positions ? 1 : 0])};
  };
}

OpBody top_k(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const int64_t k = r.config.integer("k", 1, int64_t{1} << 31);
  r.config.flag("sorted", true);  // any order will do if they need not be sorted
  r.outputs = 2;
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (w.rank(in) < 2 || w.dims(in).back() < k)
      w.fail(fmt::format("k={} of [{}] along the last axis", k, fmt::join(w.dims(in), ",")));
    if (w.failed()) return {in, in};
    Operand values = w.floats(in), index = values;
    const std::vector<ValueId> made = w.nodes("top_k", {values.id}, {{"k", k}});
    values.id = made[0];
    index.id = made.back();
    index.kind = TensorKind::kInteger;
    return {in.kind == TensorKind::kInteger ? w.integers(values) : values, index};
  };
}

// Whether fewer than k predictions are above that of the target.
OpBody in_top_k(OpReader& r) {
  const OpArgument targets = r.operand("targets", 0), predictions = r.operand("predictions", 1);
  const int64_t k = r.config.integer("k", 1, int64_t{1} << 31);
  return [=](OpWriter& w) -> Operands {
    const Operand target = targets.get(w), all = w.floats(predictions.get(w));
    if (!target.batched || !all.batched || w.rank(target) != 1 || w.rank(all) != 2)
      w.fail("targets must be [batch] and predictions [batch, classes]");
    if (w.failed()) return {target.batched ? target : all};
    const Operand ids = w.reshape(w.integers(target), {w.dims(target)[0], 1});
    const Operand own = OpWriter::value(w.nodes("take_along", {all.id, ids.id}, {{"axis", int64_t{1}}})[0]);
    const Operand above = w.sum(w.binary("less", own, all), {1}, false);
    Operand made = w.binary("less", above, w.number(static_cast<double>(k)));
    made.kind = TensorKind::kTruth;
    return {made};
  };
}

// NaN counts as `nan` if it is given; infinities are then the largest floats, as in nan_to_num.
OpBody cumulative(OpReader& r, const char* op, std::optional<double> nan = {}) {
  const OpArgument x = r.operand("x", 0);
  const auto axis = r.axes("axis");
  const auto kind = r.kind("dtype");
  return [=](OpWriter& w) -> Operands {
    Operand in = x.get(w);
    if (nan && in.kind == TensorKind::kFloat) in = without_nan(w, in, *nan);
    if (kind) in = w.as_kind(in, *kind);
    if (!axis || axis->size() != 1) w.refuse("axis=None, which includes the batch");
    const auto at = w.failed() ? std::nullopt : w.axis((*axis)[0], w.rank(in));
    if (!at) return {in};
    // Half precision would not count exactly, so what is whole is computed in the variables' dtype.
    const Operand made = w.unary(op, in.kind == TensorKind::kFloat ? in : w.floats(in, w.call().precision),
                                 {{"axis", static_cast<int64_t>(*at)}, {"reverse", false}, {"exclusive", false}});
    return {in.kind == TensorKind::kFloat ? made : w.integers(made)};
  };
}

OpBody difference(OpReader& r) {
  const OpArgument x = r.operand("a", 0);
  const int64_t times = r.config.integer("n", 0, 1024, 1), axis = r.config.integer("axis", -64, 64, -1);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return {in};
    Operand made = w.floats(in);
    for (int64_t i = 0; i < times; ++i) {
      const int64_t size = w.dims(made)[*at];
      if (size < 2) w.fail(fmt::format("n={} differences of {} elements", times, w.dims(in)[*at]));
      if (w.failed()) return {in};
      made = w.subtract(w.slice(made, *at, 1, size - 1), w.slice(made, *at, 0, size - 1));
    }
    return {in.kind == TensorKind::kInteger ? w.integers(made) : made};
  };
}

// Keeps what lies on one side of a diagonal of the last two axes.
OpBody triangle(OpReader& r, bool lower) {
  const OpArgument x = r.operand("x", 0);
  const int64_t k = r.config.integer("k", -kMostGeometry, kMostGeometry, 0);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (w.rank(in) < 3) w.refuse("a matrix of which the batch is a dimension");
    if (w.failed()) return {in};
    const Operand numbers = w.floats(in);
    const std::vector<int64_t> from = w.dims(in);
    std::vector<int64_t> matrix(from.size(), 1);
    std::copy(from.end() - 2, from.end(), matrix.end() - 2);
    const auto positions = [&](size_t axis) {
      const std::string dtype(name_of(w.call().precision));
      Operand made = OpWriter::value(
          w.nodes("iota", {}, {{"shape", matrix}, {"axis", static_cast<int64_t>(axis)}, {"dtype", dtype}})[0]);
      made.batched = false;
      return made;
    };
    const Operand row = w.affine(positions(from.size() - 2), 1, static_cast<double>(k));
    const Operand column = positions(from.size() - 1);
    const Operand kept = lower ? w.binary("less_equal", column, row) : w.binary("less_equal", row, column);
    Operand made = w.select(kept, numbers, w.number(0));
    if (in.kind == TensorKind::kInteger) return {w.integers(made)};
    made.kind = in.kind;
    return {made};
  };
}

// The elements on a diagonal of two axes, as the last dimension.
std::optional<Operand> diagonal_of(OpWriter& w, const Operand& x, int64_t offset, int64_t axis1, int64_t axis2) {
  const auto a = w.axis(axis1, w.rank(x)), b = w.axis(axis2, w.rank(x));
  if (!a || !b) return std::nullopt;
  if (*a == *b) {
    w.fail("its two axes must differ");
    return std::nullopt;
  }
  const int64_t rows = w.dims(x)[*a], columns = w.dims(x)[*b];
  Constant ids{Constant::Type::kInteger, false, {}, {}};
  for (int64_t i = 0; i < rows && ids.values.size() < static_cast<size_t>(kMostConstants); ++i)
    if (i + offset >= 0 && i + offset < columns) ids.values.push_back(static_cast<double>(i * columns + i + offset));
  if (ids.values.empty()) {
    w.fail(fmt::format("offset {} lies outside of {} x {} elements", offset, rows, columns));
    return std::nullopt;
  }
  ids.shape = Shape{static_cast<int64_t>(ids.values.size())};
  const AxesAtEnd end(w, x, {*a, *b});
  return w.gather(end.flat, w.constant(ids), w.rank(end.flat) - 1);
}

OpBody diagonal(OpReader& r, bool sums) {
  const OpArgument x = r.operand("x", 0);
  const int64_t offset = r.config.integer("offset", -kMostGeometry, kMostGeometry, 0);
  const int64_t axis1 = r.config.integer("axis1", -64, 64, 0), axis2 = r.config.integer("axis2", -64, 64, 1);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const auto made = diagonal_of(w, in, offset, axis1, axis2);
    if (!made || w.failed()) return {in};
    if (!sums) return {*made};
    const Operand total = w.sum(w.floats(*made), {w.rank(*made) - 1}, false);
    return {in.kind == TensorKind::kFloat ? total : w.integers(total)};
  };
}

constexpr std::array kOperations = {
    OpClass{"Sort", [](OpReader& r) { return sort(r, false); }},
    OpClass{"Argsort", [](OpReader& r) { return sort(r, true); }},
    OpClass{"TopK", top_k},
    OpClass{"InTopK", in_top_k},
    OpClass{"Cumsum", [](OpReader& r) { return cumulative(r, "cumsum"); }},
    OpClass{"Cumprod", [](OpReader& r) { return cumulative(r, "cumprod"); }},
    OpClass{"Nancumsum", [](OpReader& r) { return cumulative(r, "cumsum", 0); }},
    OpClass{"Nancumprod", [](OpReader& r) { return cumulative(r, "cumprod", 1); }},
    OpClass{"Diff", difference},
    OpClass{"Tril", [](OpReader& r) { return triangle(r, true); }},
    OpClass{"Triu", [](OpReader& r) { return triangle(r, false); }},
    OpClass{"Diagonal", [](OpReader& r) { return diagonal(r, false); }},
    OpClass{"Trace", [](OpReader& r) { return diagonal(r, true); }},
};

}  // namespace

std::span<const OpClass> sequence_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
