// cast and fill, the two ops that support every dtype. Floats are truncated towards zero and clamped to the integer's
// range.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                          : std::ldexp(static_cast<float>(fraction), -24));
}

uint16_t float_to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double a = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (a == 0) return sign;
  if (a >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(a, &exponent);
  const int scale = std::max(exponent - 11, -24);  // exponent of the last bit
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(a, -scale)));
  // A carry out of the fraction increments the exponent, which is correct. Subnormal numbers have scale -24.
  return static_cast<uint16_t>(sign | (((scale + 24) << 10) + units));
}

uint16_t float_to_bfloat(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double load(const TensorView& view, int64_t i) {
  switch (view.type.dtype) {
    case DType::kFloat32:
      return view.as<float>()[i];
    case DType::kFloat64:
      return view.as<double>()[i];
    case DType::kFloat16:
      return half_to_float(view.as<uint16_t>()[i]);
    case DType::kBFloat16:
      return std::bit_cast<float>(uint32_t{view.as<uint16_t>()[i]} << 16);
    case DType::kInt8:
      return view.as<int8_t>()[i];
    case DType::kInt16:
      return view.as<int16_t>()[i];
    case DType::kInt32:
      return view.as<int32_t>()[i];
    case DType::kInt64:
      return static_cast<double>(view.as<int64_t>()[i]);
    case DType::kUInt8:
      return view.as<uint8_t>()[i];
    case DType::kUInt16:
      return view.as<uint16_t>()[i];
    case DType::kUInt32:
      return view.as<uint32_t>()[i];
    case DType::kUInt64:
      return static_cast<double>(view.as<uint64_t>()[i]);
    case DType::kBool:
      return view.as<uint8_t>()[i] != 0;
  }
  return 0;
}

template <typename T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  // The largest 64-bit integer is not representable as a double, so compare with the power of two above it.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value >= above) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

void store(const TensorView& view, int64_t i, double value) {
  switch (view.type.dtype) {
    case DType::kFloat32:
      view.as<float>()[i] = static_cast<float>(value);
      break;
    case DType::kFloat64:
      view.as<double>()[i] = value;
      break;
    case DType::kFloat16:
      view.as<uint16_t>()[i] = float_to_half(value);
      break;
    case DType::kBFloat16:
      view.as<uint16_t>()[i] = float_to_bfloat(value);
      break;
    case DType::kInt8:
      view.as<int8_t>()[i] = to_integer<int8_t>(value);
      break;
    case DType::kInt16:
      view.as<int16_t>()[i] = to_integer<int16_t>(value);
      break;
    case DType::kInt32:
      view.as<int32_t>()[i] = to_integer<int32_t>(value);
      break;
    case DType::kInt64:
      view.as<int64_t>()[i] = to_integer<int64_t>(value);
      break;
    case DType::kUInt8:
      view.as<uint8_t>()[i] = to_integer<uint8_t>(value);
      break;
    case DType::kUInt16:
      view.as<uint16_t>()[i] = to_integer<uint16_t>(value);
      break;
    case DType::kUInt32:
      view.as<uint32_t>()[i] = to_integer<uint32_t>(value);
      break;
    case DType::kUInt64:
      view.as<uint64_t>()[i] = to_integer<uint64_t>(value);
      break;
    case DType::kBool:
      view.as<uint8_t>()[i] = value != 0;
      break;
  }
}

bool is_wide_integer(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kUInt64;
}

void reference_cast(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (x.type.dtype == y.type.dtype) {
    std::memmove(y.data, x.data, static_cast<size_t>(x.type.bytes()));
    return;
  }
  // A double cannot represent every 64-bit integer, so these are converted directly.
  const bool wide = is_wide_integer(x.type.dtype) && is_wide_integer(y.type.dtype);
  for_each(x.elements(), 1, [&](int64_t i) {
    if (wide)
      y.as<uint64_t>()[i] = x.as<uint64_t>()[i];
    else
      store(y, i, load(x, i));
  });
}

bool check_dtype(InferCheck& check, const Attrs& attrs) {
  return check.has("dtype", "text") && check.require(dtype_from_name(attrs.text("dtype")).has_value(),
                                                     fmt::format("dtype=\"{}\" is not a dtype", attrs.text("dtype")));
}

Result<Types> infer_cast(InTypes in, const Attrs& attrs) {
  InferCheck check("cast", in, attrs);
  if (!check.inputs(1) || !check_dtype(check, attrs)) return check.failed();
  return check.outputs({{*dtype_from_name(attrs.text("dtype")), in[0].shape}});
}

std::vector<ValueId> cast_gradient(const GradientCall& g) {
  const DType from = g.type(g.in(0)).dtype;
  if (!g.wants(0) || !is_floating(from) || !is_floating(g.type(g.out(0)).dtype)) return {kNone};
  return {g.b.add1("cast", {g.grad()}, {{"dtype", std::string(name_of(from))}})};
}

Result<Types> infer_fill(InTypes in, const Attrs& attrs) {
  InferCheck check("fill", in, attrs);
  if (!check.inputs(0) || !check.has("shape", "list") || !check.real("value") || !check_dtype(check, attrs))
    return check.failed();
  return check.outputs({{*dtype_from_name(attrs.text("dtype")), Shape(attrs.list("shape"))}});
}

void reference_fill(const ReferenceCall& call) {
  const double value = call.attrs.real("value");
  for_each(call.outputs[0].elements(), 1, [&](int64_t i) { store(call.outputs[0], i, value); });
}

}  // namespace

std::vector<OpDef> cast_ops() {
  OpDef cast;
  cast.name = "cast";
  cast.kind = OpKind::kElementwise;
  cast.recompute = Recompute::kCheap;
  cast.in_place = {{0, 0}};
  cast.infer = infer_cast;
  cast.gradient = cast_gradient;
  cast.reference = reference_cast;
  cast.error_units = 1;
  cast.cases = {{"pixels", {u8({2, 3, 3, 3})}, {{"dtype", "f32"}}, {"labels:256"}, {}},
                {"labels_from_u8", {u8({5})}, {{"dtype", "i32"}}, {"labels:10"}, {}},
                {"labels_from_i64", {i64({7})}, {{"dtype", "i32"}}, {"labels:10"}, {}},
                {"labels_from_float", {f32({9})}, {{"dtype", "i32"}}, {"labels:10"}, {}},
                {"integers", {i32({17})}, {{"dtype", "f32"}}, {"labels:1000"}, {}},
                {"wide_integers", {i64({17})}, {{"dtype", "f32"}}, {"labels:1000"}, {}},
                {"same", {f32({2, 5})}, {{"dtype", "f32"}}, {"normal"}, {0}}};

  OpDef fill;
  fill.name = "fill";
  fill.recompute = Recompute::kCheap;
  fill.infer = infer_fill;
  fill.reference = reference_fill;
  fill.error_units = 1;
  fill.cases = {{"zeros", {}, {{"shape", Ints{2, 3, 5}}, {"value", 0.0}, {"dtype", "f32"}}, {}, {}},
                {"scalar", {}, {{"shape", Ints{}}, {"value", 0.1}, {"dtype", "f32"}}, {}, {}},
                {"integers", {}, {{"shape", Ints{17}}, {"value", 3.0}, {"dtype", "i32"}}, {}, {}}};
  return {cast, fill};
}

}  // namespace plimsoll::engine
