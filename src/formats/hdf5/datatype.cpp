// Element types, and the attribute with which Keras marks bfloat16.
#include <fmt/format.h>

#include <algorithm>

#include "formats/hdf5/attributes.h"
#include "formats/hdf5/dataset.h"
#include "formats/hdf5/dense.h"

namespace plimsoll::engine {
namespace {

enum Class {
  kFixedPoint = 0,
  kFloat = 1,
  kTime = 2,
  kString = 3,
  kBitField = 4,
  kOpaque = 5,
  kEnum = 8,
  kVariable = 9
};

struct FloatFormat {
  unsigned sign, exponent, exponent_bits, mantissa, mantissa_bits, bias;
  bool operator==(const FloatFormat&) const = default;
};

std::optional<DType> float_dtype(int64_t bytes, const FloatFormat& format) {
  constexpr FloatFormat kHalf = {15, 10, 5, 0, 10, 15}, kBrain = {15, 7, 8, 0, 7, 127};
  constexpr FloatFormat kSingle = {31, 23, 8, 0, 23, 127}, kDouble = {63, 52, 11, 0, 52, 1023};
  if (bytes == 2 && format == kHalf) return DType::kFloat16;
  if (bytes == 2 && format == kBrain) return DType::kBFloat16;
  if (bytes == 4 && format == kSingle) return DType::kFloat32;
  if (bytes == 8 && format == kDouble) return DType::kFloat64;
  return std::nullopt;
}

std::optional<DType> integer_dtype(int64_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    case 8:
      return is_signed ? DType::kInt64 : DType::kUInt64;
    default:
      return std::nullopt;
  }
}

void parse_fixed_point(Hdf5Cursor& cursor, uint32_t bits, Hdf5Element& element) {
  const unsigned offset = cursor.u16(), precision = cursor.u16();
  element.big_endian = (bits & 1) != 0;
  if (offset == 0 && precision == element.bytes * 8) element.dtype = integer_dtype(element.bytes, (bits & 8) != 0);
}

void parse_float(Hdf5Cursor& cursor, uint32_t bits, Hdf5Element& element) {
  const unsigned offset = cursor.u16(), precision = cursor.u16();
  FloatFormat format{};
  format.sign = bits >> 8 & 0xff;
  format.exponent = cursor.u8();
  format.exponent_bits = cursor.u8();
  format.mantissa = cursor.u8();
  format.mantissa_bits = cursor.u8();
  format.bias = cursor.u32();
  element.big_endian = (bits & 1) != 0;
  constexpr uint32_t kVaxOrder = 0x40, kNormalization = 0x30, kImpliedOne = 0x20;
  if (offset != 0 || precision != element.bytes * 8) return;
  if ((bits & kVaxOrder) != 0 || (bits & kNormalization) != kImpliedOne) return;
  element.dtype = float_dtype(element.bytes, format);
}

// h5py stores a boolean as an enumeration of two one-byte integers. The type of the integers follows.
void parse_enum(Hdf5Cursor& cursor, uint32_t bits, Hdf5Element& element) {
  Hdf5Element base;
  const int kind = cursor.u8() & 0x0f;
  const auto base_bits = static_cast<uint32_t>(cursor.number(3));
  base.bytes = cursor.u32();
  if (kind != kFixedPoint || base.bytes != element.bytes) return;
  parse_fixed_point(cursor, base_bits, base);
  element.complete = base.dtype.has_value();
  if (element.complete && element.bytes == 1 && (bits & 0xffff) == 2) element.dtype = DType::kBool;
}

std::string_view class_name(int type) {
  constexpr std::array<std::string_view, 12> kNames = {
      "integers",     "floating-point numbers", "times",      "text",
      "bit fields",   "opaque elements",        "structures", "references",
      "enumerations", "variable-length",        "arrays",     "complex numbers"};
  return type >= 0 && static_cast<size_t>(type) < kNames.size() ? kNames[static_cast<size_t>(type)] : "elements";
}

// Returns whether the attribute's value is the text kHdf5Mark, stored in place or in a global heap.
Result<bool> holds_mark(Hdf5Reader& reader, const Hdf5Attribute& attribute) {
  Hdf5Cursor type(attribute.datatype);
  const int kind = type.u8() & 0x0f;
  const auto bits = static_cast<uint32_t>(type.number(3));
  const uint64_t size = type.u32();
  Hdf5Cursor value(attribute.value);
  if (!type.ok()) return false;
  if (kind == kString) {
    const auto text = value.text(size);
    return text.substr(0, text.find('\0')) == kHdf5Mark;
  }
  constexpr uint32_t kText = 1;
  if (kind != kVariable || (bits & 0xf) != kText) return false;
  const uint64_t bytes = value.u32(), heap = reader.region().address(value), index = value.u32();
  if (!value.ok() || bytes != kHdf5Mark.size()) return false;
  return reader.is_mark(heap, index);
}

}  // namespace

Result<Hdf5Element> parse_datatype(const Hdf5Reader& reader, std::span<const std::byte> message) {
  Hdf5Cursor cursor(message);
  const int kind = cursor.u8() & 0x0f;
  const auto bits = static_cast<uint32_t>(cursor.number(3));
  Hdf5Element element;
  element.datatype = message;
  element.bytes = cursor.u32();
  if (!cursor.ok()) return reader.damaged("a datatype message is truncated");
  if (element.bytes == 0) return reader.damaged("a dataset has elements of 0 bytes");
  element.complete = kind <= kOpaque;
  element.opaque = kind == kOpaque;
  if (kind == kFixedPoint) parse_fixed_point(cursor, bits, element);
  if (kind == kFloat) parse_float(cursor, bits, element);
  if (kind == kEnum) parse_enum(cursor, bits, element);
  if (!cursor.ok()) return reader.damaged("a datatype message is truncated");
  constexpr uint32_t kText = 1;
  element.fixed_text = kind == kString;
  element.variable_text = kind == kVariable && (bits & 0xf) == kText;
  const bool text = element.fixed_text || element.variable_text;
  if (!element.dtype)
    element.unreadable =
        text ? "text" : fmt::format("{} of {} bytes, a type that is not supported", class_name(kind), element.bytes);
  return element;
}

Result<bool> is_marked_bfloat16(Hdf5Reader& reader, const Hdf5Header& header) {
  bool marked = false;
  const auto look = [&](std::span<const std::byte> message) -> Status {
    const auto attribute = parse_attribute(message);
    if (!attribute || attribute->name != "dtype") return {};
    PLIMSOLL_ASSIGN(marked, holds_mark(reader, *attribute));
    return {};
  };
  for (const auto& message : header.messages) {
    if (message.shared) continue;
    if (message.type == Hdf5MessageType::kAttribute)
      PLIMSOLL_TRY(look(message.body));
    else if (message.type == Hdf5MessageType::kAttributeInfo)
      PLIMSOLL_TRY(read_dense(reader, Hdf5Dense::kAttributes, message.body, look));
  }
  return marked;
}

}  // namespace plimsoll::engine
