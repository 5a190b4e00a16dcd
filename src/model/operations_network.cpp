// Functions of neural networks: softmax, normalisations, attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/einsum.h"
#include "model/operation.h"
#include "model/operation_axes.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

// The largest element is subtracted first, and gets no gradient of its own.
Operand log_softmax_of(OpWriter& w, const Operand& x, const std::vector<size_t>& axes) {
  const Operand top = w.unary("stop_gradient", w.reduce("reduce_max", x, axes, true));
  const Operand shifted = w.subtract(x, top);
  return w.subtract(shifted, w.unary("log", w.sum(w.unary("exp", shifted), axes, true)));
}

OpBody softmax(OpReader& r, bool logarithm) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), true};
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(reduction.x.get(w));
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    if (logarithm) return {log_softmax_of(w, in, axes)};
    if (axes == std::vector<size_t>{w.rank(in) - 1}) return {w.unary("softmax", in)};
    const AxesAtEnd end(w, in, axes);
    return {end.undo(w, w.unary("softmax", end.flat))};
  };
}

OpBody normalize(OpReader& r) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), true};
  const int64_t order = r.config.integer("order", 1, 64, 2);
  const double epsilon = r.config.real("epsilon", kEpsilon);
  if (epsilon <= 0) r.reject("'epsilon' must be positive");
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(reduction.x.get(w));
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    if (order == 2) {
      const Operand inverse = w.unary("rsqrt", w.sum(w.unary("square", in), axes, true));
      return {w.multiply(in, w.binary("minimum", inverse, w.number(1 / epsilon)))};
    }
    Operand norm = w.unary("abs", in);
    if (order > 1) norm = w.power(norm, w.number(static_cast<double>(order)));
    norm = w.sum(norm, axes, true);
    if (order > 1) norm = w.power(norm, w.number(1 / static_cast<double>(order)));
    return {w.divide(in, w.binary("maximum", norm, w.number(epsilon)))};
  };
}

// A vector of constants for the elements along axes, in the shape that broadcasts with a tensor of these dimensions.
Operand along(OpWriter& w, const Operand& vector, const std::vector<int64_t>& dims, const std::vector<size_t>& axes) {
  if (vector.batched || vector.id == kNone || w.rank(vector) == dims.size()) return vector;
  std::vector<int64_t> to(dims.size(), 1);
  int64_t size = 1;
  for (size_t d : axes) size *= to[d] = dims[d];
  int64_t own = 1;
  for (int64_t d : w.dims(vector)) own *= d;
  if (own != size)
    w.fail(fmt::format("a parameter has [{}], but the normalised axes have {} elements", fmt::join(w.dims(vector), ","),
                       size));
  return w.failed() ? vector : w.reshape(vector, to);
}

struct Parameter {
  std::optional<OpArgument> argument;

  std::optional<Operand> get(OpWriter& w, const Operand& x, const std::vector<size_t>& axes) const {
    if (!argument) return std::nullopt;
    return along(w, w.floats(argument->get(w), w.dtype(x)), w.dims(x), axes);
  }
};

// Statistics are computed in the variables' dtype, and the result has the dtype of x.
OpBody layer_norm(OpReader& r) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), true};
  const Parameter gamma{r.optional_operand("gamma", 1)}, beta{r.optional_operand("beta", 2)};
  const double epsilon = r.config.real("epsilon", kEpsilon);
  const bool rms = r.config.flag("rms_scaling", false);
  return [=](OpWriter& w) -> Operands {
    const Operand given = w.floats(reduction.x.get(w));
    const Operand in = w.floats(given, w.call().precision);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    Operand made = rms ? in : w.subtract(in, w.mean(in, axes, true));
    made = w.multiply(made, w.unary("rsqrt", w.affine(variance(w, in, axes, true), 1, epsilon)));
    if (const auto factor = gamma.get(w, in, axes)) made = w.multiply(made, *factor);
    if (const auto offset = rms ? std::nullopt : beta.get(w, in, axes)) made = w.add(made, *offset);
    return {w.failed() ? in : w.floats(made, w.dtype(given))};
  };
}

OpBody rms_norm(OpReader& r) {
  const GivenAxes reduction{r.operand("x", 0), r.axes("axis"), true};
  const auto scale = r.optional_operand("scale", 1);
  const double epsilon = r.config.real("epsilon", kEpsilon);
  return [=](OpWriter& w) -> Operands {
    const Operand given = w.floats(reduction.x.get(w));
    const Operand in = w.floats(given, w.call().precision);
    const std::vector<size_t> axes = reduction.axes(w, w.rank(in));
    if (w.failed()) return {in};
    const Operand size = w.mean(w.unary("square", in), axes, true);
    Operand made = w.multiply(in, w.unary("rsqrt", w.affine(size, 1, epsilon)));
    if (scale) made = w.multiply(made, w.floats(scale->get(w), w.dtype(in)));
    return {w.failed() ? in : w.floats(made, w.dtype(given))};
  };
}

// With given statistics, which are constants.
OpBody batch_norm(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const OpArgument mean = r.operand("mean", 1), spread = r.operand("variance", 2);
  const Parameter offset{r.optional_operand("offset", 3)}, scale{r.optional_operand("scale", 4)};
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  const double epsilon = r.config.real("epsilon", 1e-3);
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w));
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return {in};
    const std::vector<size_t> axes{*at};
    const auto centre = Parameter{mean}.get(w, in, axes), squares = Parameter{spread}.get(w, in, axes);
    if (w.failed()) return {in};
    Operand inverse = w.unary("rsqrt", w.affine(*squares, 1, epsilon));
    if (const auto factor = scale.get(w, in, axes)) inverse = w.multiply(inverse, *factor);
    Operand made = w.multiply(w.subtract(in, *centre), inverse);
    if (const auto shift = offset.get(w, in, axes)) made = w.add(made, *shift);
    return {made};
  };
}

// 1 where position s is not after position t.
Operand causal_mask(OpWriter& w, int64_t t, int64_t s) {
  const auto positions = [&](int64_t axis) {
    const std::string dtype(name_of(w.call().precision));
    Operand made = OpWriter::value(
        w.nodes("iota", {}, {{"shape", std::vector<int64_t>{1, 1, t, s}}, {"axis", axis}, {"dtype", dtype}})[0]);
    made.batched = false;
    return made;
  };
  Operand made = w.binary("less_equal", positions(3), positions(2));
  made.batched = false;
  made.kind = TensorKind::kTruth;
  return made;
}

Operand attend(OpWriter& w, const char* equation, const Operand& a, const Operand& b) {
  const auto labels = read_einsum(equation, std::array<size_t, 2>{4, 4}, "attention");
  const std::vector<Shape> shapes{Shape(w.dims(a)), Shape(w.dims(b))};
  if (const Status fits = check_einsum(*labels, shapes, "attention"); !fits) w.fail(fits.error().what);
  return w.failed() ? a : OpWriter::value(einsum(w.call().b, *labels, {a.id, b.id}));
}

OpBody attention(OpReader& r) {
  const OpArgument query = r.operand("query", 0), key = r.operand("key", 1), value = r.operand("value", 2);
  const auto bias = r.optional_operand("bias", 3), mask = r.optional_operand("mask", 4);
  const Json* given_scale = r.arguments.value("scale", 5);
  const auto scale = given_scale ? as_number(*given_scale) : std::nullopt;
  if (given_scale && !scale) r.refuse("scale=" + shown(*given_scale));
  const bool causal = r.config.flag("is_causal", false);
  r.config.only("flash_attention", {false});
  r.config.only("attn_logits_soft_cap");
  return [=](OpWriter& w) -> Operands {
    const Operands qkv = w.joint_floats(std::array{query.get(w), key.get(w), value.get(w)});
    for (const Operand& one : qkv)
      if (!one.batched || w.rank(one) != 4) w.fail("query, key and value must be tensors of 4 dimensions");
    if (w.failed()) return {qkv[0]};
    if (w.dims(qkv[0])[2] != w.dims(qkv[1])[2]) w.refuse("heads that share keys and values");
    if (w.failed()) return {qkv[0]};
    const auto width = static_cast<double>(w.dims(qkv[1])[3]);
    Operand logits = attend(w, "btnh,bsnh->bnts", qkv[0], qkv[1]);
    if (w.failed()) return {qkv[0]};
    logits = w.affine(w.floats(logits, w.call().precision), scale.value_or(1 / std::sqrt(width)), 0);
    if (bias) logits = w.add(logits, w.floats(bias->get(w), w.call().precision));
    const Operand low = w.number(-0.7 * static_cast<double>(std::numeric_limits<float>::max()));
    if (mask && !w.failed()) logits = w.select(w.truths(mask->get(w)), logits, low);
    if (causal && !w.failed()) logits = w.select(causal_mask(w, w.dims(logits)[2], w.dims(logits)[3]), logits, low);
    if (w.failed()) return {qkv[0]};
    const Operand shares = w.floats(w.unary("softmax", logits), w.dtype(qkv[1]));
    return {attend(w, "bnts,bsnh->btnh", shares, qkv[2])};
  };
}

constexpr std::array kOperations = {
    OpClass{"Softmax", [](OpReader& r) { return softmax(r, false); }},
    OpClass{"LogSoftmax", [](OpReader& r) { return softmax(r, true); }},
    OpClass{"Normalize", normalize},
    OpClass{"LayerNorm", layer_norm},
    OpClass{"RMSNorm", rms_norm},
    OpClass{"BatchNorm", batch_norm},
    OpClass{"DotProductAttention", attention},
};

}  // namespace

std::span<const OpClass> network_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
