// Operations that choose, round or replace elements, and conversions between kinds of elements.
#include <array>
#include <cmath>
#include <limits>

#include "model/operation.h"
#include "model/operation_axes.h"

namespace plimsoll::engine {

Operand without_nan(OpWriter& w, const Operand& x, double nan, double high, double low) {
  const Operand end = w.select(w.binary("less", x, w.number(0)), w.number(low), w.number(high));
  const Operand made = w.select(w.unary("is_nan", x), w.number(nan), x);
  return w.select(w.unary("is_inf", x), w.floats(end, w.dtype(x)), made);
}

namespace {

// Chooses in the joint kind of the two.
Operand choose(OpWriter& w, const Operand& condition, const Operand& a, const Operand& b) {
  const TensorKind kind = w.joint_kind(std::array{a, b});
  const Operands both = w.joint_floats(std::array{a, b});
  Operand made = w.select(w.truths(condition), both[0], both[1]);
  if (w.failed()) return made;
  made.kind = kind;
  return kind == TensorKind::kInteger ? w.integers(w.as_kind(made, TensorKind::kFloat)) : made;
}

OpBody where(OpReader& r) {
  const OpArgument condition = r.operand("condition", 0);
  const auto a = r.optional_operand("x1", 1), b = r.optional_operand("x2", 2);
  if (!a || !b) {
    r.refuse("called without x1 and x2: the shape of its result depends on the data");
    return nullptr;
  }
  return [=](OpWriter& w) -> Operands { return {choose(w, condition.get(w), a->get(w), b->get(w))}; };
}

// The first condition that holds decides.
OpBody select(OpReader& r) {
  const auto conditions = r.operands("condlist", 0), choices = r.operands("choicelist", 1);
  const auto otherwise = r.optional_operand("default", 2);
  if (conditions.size() != choices.size()) r.reject("condlist and choicelist must have the same length");
  OpArgument last;
  last.constant = {Constant::Type::kInteger, true, {}, {0}};
  if (otherwise) last = *otherwise;
  return [=](OpWriter& w) -> Operands {
    Operand made = last.get(w);
    for (size_t i = std::min(conditions.size(), choices.size()); i-- > 0;)
      made = choose(w, conditions[i].get(w), choices[i].get(w), made);
    return {made};
  };
}

std::optional<Constant> bound(OpReader& r, const char* key) {
  const Json* value = r.config.value(key);
  const auto constant = value ? read_constant(*value) : std::nullopt;
  if (value && !constant) r.refuse(std::string(key) + "=" + shown(*value));
  return constant;
}

OpBody clip(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto low = bound(r, "x_min"), high = bound(r, "x_max");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    Operand made = w.floats(in);
    const DType dtype = w.dtype(made);
    if (high) made = w.binary("minimum", made, w.floats(w.constant(*high), dtype));
    if (low && !w.failed()) made = w.binary("maximum", made, w.floats(w.constant(*low), dtype));
    // Keras clips truth values as integers.
    return {in.kind == TensorKind::kFloat ? made : w.integers(made)};
  };
}

OpBody is_close(OpReader& r) {
  const OpArgument a = r.operand("x1", 0), b = r.operand("x2", 1);
  const auto number = [&](const char* name, size_t position, double otherwise) {
    const Json* value = r.arguments.value(name, position);
    const auto real = value ? as_number(*value) : std::nullopt;
    if (value && !real) r.refuse(std::string(name) + "=" + shown(*value));
    return real.value_or(otherwise);
  };
  const double relative = number("rtol", 2, 1e-5), absolute = number("atol", 3, 1e-8);
  const bool equal_nan = r.config.flag("equal_nan", false);
  return [=](OpWriter& w) -> Operands {
    const Operands x = w.joint_floats(std::array{a.get(w), b.get(w)});
    const Operand distance = w.unary("abs", w.subtract(x[0], x[1]));
    if (w.failed()) return {distance};
    Operand made = w.binary("less_equal", distance, w.affine(w.unary("abs", x[1]), relative, absolute));
    if (equal_nan) made = w.binary("maximum", made, w.multiply(w.unary("is_nan", x[0]), w.unary("is_nan", x[1])));
    made.kind = TensorKind::kTruth;
    return {made};
  };
}

OpBody nan_to_num(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const double largest = std::numeric_limits<float>::max();
  const double nan = r.config.real("nan", 0), high = r.config.real("posinf", largest),
               low = r.config.real("neginf", -largest);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    return {in.kind != TensorKind::kFloat ? in : without_nan(w, in, nan, high, low)};
  };
}

OpBody round_to(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const int64_t decimals = r.config.integer("decimals", -30, 30, 0);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (in.kind != TensorKind::kFloat && decimals >= 0) return {in};
    const double factor = std::pow(10.0, static_cast<double>(decimals));
    Operand made = w.floats(in);
    if (decimals != 0) made = w.affine(made, factor, 0);
    made = w.unary("round", made);
    if (decimals != 0) made = w.divide(made, w.number(factor));
    return {in.kind == TensorKind::kInteger ? w.integers(made) : made};
  };
}

Operand cast_to(OpWriter& w, const Operand& x, TensorKind kind, bool half) {
  if (kind != TensorKind::kFloat) return w.as_kind(x, kind);
  return w.floats(x, half ? w.call().compute : w.call().precision);
}

OpBody cast(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto kind = r.kind("dtype");
  const bool half = !r.half_cast.empty();
  return [=](OpWriter& w) -> Operands { return {kind ? cast_to(w, x.get(w), *kind, half) : x.get(w)}; };
}

// Cast, after what is outside of the integers' range was brought to its ends.
OpBody saturate_cast(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto kind = r.kind("dtype");
  if (!r.half_cast.empty()) r.refuse("dtype=" + r.half_cast);
  const Json* dtype = r.config.value("dtype");
  if (dtype && *dtype == "int64") r.refuse("dtype=int64: integers have 32 bits here");
  return [=](OpWriter& w) -> Operands {
    Operand in = x.get(w);
    if (!kind) return {in};
    if (*kind == TensorKind::kInteger && in.kind == TensorKind::kFloat) {
      constexpr double kLow = -2147483648.0, kHigh = 2147483520.0;  // the largest float below 2^31
      in = w.binary("maximum", w.binary("minimum", in, w.number(kHigh)), w.number(kLow));
    }
    if (*kind == TensorKind::kTruth && in.kind == TensorKind::kFloat) w.refuse("dtype=bool of floats");
    return {w.as_kind(in, *kind)};
  };
}

OpBody convert(OpReader& r) {
  r.config.only("sparse", {false});
  r.config.only("ragged", {false});
  return cast(r);
}

OpBody stop_gradient(OpReader& r) {
  const OpArgument x = r.operand("variable", 0);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    return {in.kind == TensorKind::kFloat ? w.unary("stop_gradient", in) : in};
  };
}

// A constant with the shape of a tensor.
OpBody like(OpReader& r, std::optional<double> value) {
  const OpArgument x = r.operand("x", 0);
  OpArgument filling;
  if (value)
    filling.constant = {Constant::Type::kInteger, true, {}, {*value}};
  else
    filling = r.operand("fill_value", 1);
  const auto kind = r.kind("dtype");
  const bool half = !r.half_cast.empty();
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    Operand from = filling.get(w);
    from = w.as_kind(from, TensorKind::kFloat);
    const TensorKind result = kind.value_or(in.kind);
    const DType dtype = kind ? (half ? w.call().compute : w.call().precision)
                             : (is_floating(w.dtype(in)) ? w.dtype(in) : w.call().precision);
    from = w.floats(from, dtype);
    if (from.number && result == TensorKind::kInteger) from.number = std::trunc(*from.number);
    if (from.number && result == TensorKind::kTruth) from.number = *from.number != 0 ? 1 : 0;
    w.joint_dims(std::array{in, from});
    if (w.failed()) return {in};
    Operand made = OpWriter::value(w.materialize(from, w.dims(in), dtype));
    made.kind = TensorKind::kFloat;
    if (result == TensorKind::kInteger) return {w.integers(made)};
    if (result == TensorKind::kTruth && !from.number) return {w.truths(made)};
    made.kind = result;
    return {made};
  };
}

constexpr std::array kOperations = {
    OpClass{"Where", where},
    OpClass{"Select", select},
    OpClass{"Clip", clip},
    OpClass{"Isclose", is_close},
    OpClass{"NanToNum", nan_to_num},
    OpClass{"Round", round_to},
    OpClass{"Cast", cast},
    OpClass{"SaturateCast", saturate_cast},
    OpClass{"Array", cast},
    OpClass{"ConvertToTensor", convert},
    OpClass{"StopGradient", stop_gradient},
    OpClass{"ZerosLike", [](OpReader& r) { return like(r, 0); }},
    OpClass{"EmptyLike", [](OpReader& r) { return like(r, 0); }},
    OpClass{"OnesLike", [](OpReader& r) { return like(r, 1); }},
    OpClass{"FullLike", [](OpReader& r) { return like(r, {}); }},
};

}  // namespace

std::span<const OpClass> selection_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
