// Cross-entropies as operations, by Keras's formulas on TensorFlow.
#include <fmt/format.h>

#include <array>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

Operand log_of_probability(OpWriter& w, const Operand& p) {
  const Operand below = w.binary("minimum", p, w.number(1 - kEpsilon));
  return w.unary("log", w.binary("maximum", below, w.number(kEpsilon)));
}

Operand log_softmax(OpWriter& w, const Operand& x, size_t axis) {
  const Operand top = w.unary("stop_gradient", w.reduce("reduce_max", x, {axis}, true));
  const Operand shifted = w.subtract(x, top);
  return w.subtract(shifted, w.unary("log", w.sum(w.unary("exp", shifted), {axis}, true)));
}

OpBody binary_crossentropy(OpReader& r) {
  const OpArgument target = r.operand("target", 0), output = r.operand("output", 1);
  const bool logits = r.config.flag("from_logits", false);
  return [=](OpWriter& w) -> Operands {
    const Operands both = w.joint_floats(std::array{target.get(w), output.get(w)});
    const Operand &y = both[0], &x = both[1];
    if (w.dims(y) != w.dims(x)) w.fail("target and output must have the same shape");
    if (w.failed()) return {x};
    if (logits) {
      const Operand spread = w.unary("log1p", w.unary("exp", w.affine(w.unary("abs", x), -1, 0)));
      return {w.add(w.subtract(w.binary("maximum", x, w.number(0)), w.multiply(x, y)), spread)};
    }
    const Operand not_x = log_of_probability(w, w.affine(x, -1, 1));
    const Operand gain = w.add(w.multiply(y, log_of_probability(w, x)), w.multiply(w.affine(y, -1, 1), not_x));
    return {w.affine(gain, -1, 0)};
  };
}

OpBody categorical_crossentropy(OpReader& r) {
  const OpArgument target = r.operand("target", 0), output = r.operand("output", 1);
  const bool logits = r.config.flag("from_logits", false);
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  return [=](OpWriter& w) -> Operands {
    const Operands both = w.joint_floats(std::array{target.get(w), output.get(w)});
    const auto at = w.axis(axis, w.rank(both[1]));
    if (w.dims(both[0]) != w.dims(both[1])) w.fail("target and output must have the same shape");
    if (!at || w.failed()) return {both[1]};
    const Operand logarithm =
        logits ? log_softmax(w, both[1], *at) : log_of_probability(w, w.divide(both[1], w.sum(both[1], {*at}, true)));
    return {w.affine(w.sum(w.multiply(both[0], logarithm), {*at}, false), -1, 0)};
  };
}

OpBody sparse_categorical_crossentropy(OpReader& r) {
  const OpArgument target = r.operand("target", 0), output = r.operand("output", 1);
  const bool logits = r.config.flag("from_logits", false);
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  return [=](OpWriter& w) -> Operands {
    const Operand x = w.floats(output.get(w));
    const auto at = w.axis(axis, w.rank(x));
    if (at && *at + 1 != w.rank(x)) w.fail("its axis must be the last one");
    std::vector<int64_t> rows = w.dims(x);
    if (!rows.empty()) rows.back() = 1;
    const Operand given = w.integers(target.get(w));
    int64_t labels = 1, expected = 1;
    for (int64_t d : w.dims(given)) labels *= d;
    for (int64_t d : rows) expected *= d;
    if (!given.batched || labels != expected) w.fail("it needs one label per row of the output");
    if (!at || w.failed()) return {x};
    const Operand logarithm = log_softmax(w, logits ? x : log_of_probability(w, x), *at);
    const Operand ids = w.reshape(given, rows);
    const ValueId own = w.nodes("take_along", {logarithm.id, ids.id}, {{"axis", static_cast<int64_t>(*at)}})[0];
    return {w.affine(w.without(OpWriter::value(own), {*at}), -1, 0)};
  };
}

constexpr std::array kOperations = {
    OpClass{"BinaryCrossentropy", binary_crossentropy},
    OpClass{"CategoricalCrossentropy", categorical_crossentropy},
    OpClass{"SparseCategoricalCrossentropy", sparse_categorical_crossentropy},
};

}  // namespace

std::span<const OpClass> loss_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
