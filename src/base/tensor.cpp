#include "base/tensor.h"

#include <fmt/format.h>

#include <array>

namespace plimsoll::engine {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name, keras;
  Bytes size;
  bool floating;
};

constexpr std::array<DTypeRow, 13> kRows = {{{DType::kFloat32, "f32", "float32", 4, true},
                                             {DType::kFloat64, "f64", "float64", 8, true},
                                             {DType::kFloat16, "f16", "float16", 2, true},
                                             {DType::kBFloat16, "bf16", "bfloat16", 2, true},
                                             {DType::kInt8, "i8", "int8", 1, false},
                                             {DType::kInt16, "i16", "int16", 2, false},
                                             {DType::kInt32, "i32", "int32", 4, false},
                                             {DType::kInt64, "i64", "int64", 8, false},
                                             {DType::kUInt8, "u8", "uint8", 1, false},
                                             {DType::kUInt16, "u16", "uint16", 2, false},
                                             {DType::kUInt32, "u32", "uint32", 4, false},
                                             {DType::kUInt64, "u64", "uint64", 8, false},
                                             {DType::kBool, "bool", "bool", 1, false}}};

const DTypeRow& row(DType dtype) {
  return kRows[static_cast<size_t>(dtype)];
}

}  // namespace

Bytes size_of(DType dtype) {
  return row(dtype).size;
}
bool is_floating(DType dtype) {
  return row(dtype).floating;
}
std::string_view name_of(DType dtype) {
  return row(dtype).name;
}
std::string_view keras_name(DType dtype) {
  return row(dtype).keras;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& r : kRows)
    if (r.name == name || r.keras == name) return r.dtype;
  return std::nullopt;
}

Result<Shape> checked_shape(std::vector<int64_t> dims, std::string_view where) {
  constexpr int64_t kMostElements = int64_t{1} << 46;
  int64_t elements = 1;
  for (int64_t d : dims) {
    if (d <= 0)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: every dimension must be positive, got [{}]", where, fmt::join(dims, ",")));
    if (d > kMostElements / elements)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: [{}] has more than 2^46 elements", where, fmt::join(dims, ",")));
    elements *= d;
  }
  return Shape(std::move(dims));
}

std::string to_text(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape.dims, ","));
}
std::string to_text(const Precision& precision) {
  return (precision.is_mixed() ? "mixed_" : "") + std::string(keras_name(precision.compute));
}

std::optional<Precision> precision_from_text(std::string_view text) {
  for (const Precision& known :
       {Precision(DType::kFloat32), Precision(DType::kFloat64), Precision(DType::kFloat32, DType::kBFloat16),
        Precision(DType::kFloat32, DType::kFloat16)})
    if (text == to_text(known)) return known;
  return std::nullopt;
}

std::string to_text(const TensorType& type) {
  return fmt::format("{}[{}]", name_of(type.dtype), to_text(type.shape));
}

}  // namespace plimsoll::engine
