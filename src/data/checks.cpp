#include "data/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace plimsoll::engine {
namespace {

// Elements per block. The loop branches once per block: a block is long enough to vectorise, and short enough to be
// searched again.
constexpr int64_t kBlock = 2048;

// Data from a file may have any alignment, so elements are loaded with memcpy, which compilers turn into a plain load.
template <typename T>
T load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Returns the first index whose `bad(element)` is not 0. `bad` must not branch: its results are or-ed over a block.
template <typename T, typename Bad>
std::optional<int64_t> first_where(const void* data, int64_t count, Bad bad) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    T any = 0;
    for (int64_t i = begin; i < end; ++i) any |= bad(load<T>(data, i));
    if (any == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if (bad(load<T>(data, i)) != 0) return i;
  }
  return std::nullopt;
}

// NaN and infinity have an exponent of all ones, so adding the exponent's lowest bit carries into the sign bit; no
// other value does. This takes three instructions of the baseline vector set, for every width.
template <typename Word>
std::optional<int64_t> first_all_ones_exponent(const void* data, int64_t count, Word exponent) {
  const auto lowest = static_cast<Word>(exponent & (~exponent + 1));
  constexpr auto kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  return first_where<Word>(
      data, count, [=](Word word) { return static_cast<Word>(static_cast<Word>((word & exponent) + lowest) & kSign); });
}

// As unsigned numbers, negative labels are large. If the type cannot reach the bound, every label passes.
template <typename Unsigned>
std::optional<int64_t> first_outside(const void* data, int64_t count, int64_t classes, bool is_signed) {
  const uint64_t top =
      is_signed ? std::numeric_limits<std::make_signed_t<Unsigned>>::max() : std::numeric_limits<Unsigned>::max();
  const auto last = static_cast<Unsigned>(std::min(static_cast<uint64_t>(classes - 1), top));
  return first_where<Unsigned>(data, count, [=](Unsigned label) { return static_cast<Unsigned>(label > last); });
}

float half_to_float(uint16_t half) {
  const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  else
    magnitude = std::bit_cast<float>((exponent + 112) << 23 | fraction << 13);
  return half >> 15 ? -magnitude : magnitude;
}

std::optional<int64_t> first_bad_floating_label(DType dtype, const void* data, int64_t count, int64_t classes) {
  const auto limit = static_cast<double>(classes);
  for (int64_t i = 0; i < count; ++i) {
    const double label = element(dtype, data, i);
    if (!(label >= 0 && label < limit && label == std::trunc(label))) return i;
  }
  return std::nullopt;
}

std::optional<int64_t> first_bad_floating_id(DType dtype, const void* data, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i)
    if (const double id = element(dtype, data, i); !(id > -1 && id < static_cast<double>(rows))) return i;
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> first_not_finite(DType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return first_all_ones_exponent<uint32_t>(data, count, 0x7F800000);
    case DType::kFloat64:
      return first_all_ones_exponent<uint64_t>(data, count, 0x7FF0000000000000);
    case DType::kFloat16:
      return first_all_ones_exponent<uint16_t>(data, count, 0x7C00);
    case DType::kBFloat16:
      return first_all_ones_exponent<uint16_t>(data, count, 0x7F80);
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> first_bad_label(DType dtype, const void* data, int64_t count, int64_t classes) {
  if (classes <= 0) classes = int64_t{1} << 31;
  if (is_floating(dtype)) return first_bad_floating_label(dtype, data, count, classes);
  const bool is_signed =
      dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
  switch (size_of(dtype)) {
    case 1:
      return first_outside<uint8_t>(data, count, classes, is_signed);
    case 2:
      return first_outside<uint16_t>(data, count, classes, is_signed);
    case 4:
      return first_outside<uint32_t>(data, count, classes, is_signed);
    default:
      return first_outside<uint64_t>(data, count, classes, is_signed);
  }
}

double element(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return load<float>(data, index);
    case DType::kFloat64:
      return load<double>(data, index);
    case DType::kFloat16:
      return half_to_float(load<uint16_t>(data, index));
    case DType::kBFloat16:
      return std::bit_cast<float>(uint32_t{load<uint16_t>(data, index)} << 16);
    case DType::kInt8:
      return load<int8_t>(data, index);
    case DType::kInt16:
      return load<int16_t>(data, index);
    case DType::kInt32:
      return load<int32_t>(data, index);
    case DType::kInt64:
      return static_cast<double>(load<int64_t>(data, index));
    case DType::kUInt8:
    case DType::kBool:
      return load<uint8_t>(data, index);
    case DType::kUInt16:
      return load<uint16_t>(data, index);
    case DType::kUInt32:
      return load<uint32_t>(data, index);
    case DType::kUInt64:
      return static_cast<double>(load<uint64_t>(data, index));
  }
  return 0;
}

int64_t integer_element(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kInt64) return load<int64_t>(data, index);
  if (dtype == DType::kUInt64) return static_cast<int64_t>(load<uint64_t>(data, index));
  return static_cast<int64_t>(element(dtype, data, index));
}

std::string element_text(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kInt64) return fmt::format("{}", load<int64_t>(data, index));
  if (dtype == DType::kUInt64) return fmt::format("{}", load<uint64_t>(data, index));
  return fmt::format("{}", element(dtype, data, index));
}

namespace {

// Returns " at (3, 4, 0)", the position of an element in its sample; "" if a sample is a single number.
std::string position_text(const Shape& shape, int64_t index) {
  if (shape.rank() == 0) return "";
  std::vector<int64_t> at(shape.rank());
  for (size_t i = shape.rank(); i-- > 0; index /= shape[i]) at[i] = index % shape[i];
  return fmt::format(" at ({}{})", fmt::join(at, ", "), at.size() == 1 ? "," : "");
}

}  // namespace

std::optional<int64_t> first_bad_element(const CheckedArray& array, const void* data, int64_t samples) {
  const int64_t count = samples * array.sample.elements();
  if (const auto index = first_not_finite(array.dtype, data, count)) return index;
  if (array.is_ids && !is_floating(array.dtype)) return first_bad_label(array.dtype, data, count, array.classes);
  if (array.is_ids) return first_bad_floating_id(array.dtype, data, count, array.classes);
  if (!array.is_labels) return std::nullopt;
  for (int64_t begin = 0; begin < count; ++begin) {
    const auto* const rest = static_cast<const std::byte*>(data) + begin * size_of(array.dtype);
    const auto bad = first_bad_label(array.dtype, rest, count - begin, array.classes);
    if (!bad) return std::nullopt;
    begin += *bad;
    if (!array.ignored_class || element(array.dtype, data, begin) != static_cast<double>(*array.ignored_class))
      return begin;
  }
  return std::nullopt;
}

Error bad_element(const CheckedArray& array, const void* data, int64_t index, int64_t sample) {
  const std::string value = element_text(array.dtype, data, index);
  const std::string position = position_text(array.sample, index % array.sample.elements());
  if (!std::isfinite(element(array.dtype, data, index))) {
    Error error{ErrorCode::kDataNotFinite,
                fmt::format("{}: sample {} holds {}{}", array.label, sample, value, position),
                {"one such element makes the loss NaN, and then every weight"},
                {}};
    return error.remedy("remove the sample, or replace the element (np.nan_to_num)");
  }
  Error error{
      ErrorCode::kLabelOutOfRange,
      fmt::format("{}: sample {} has the {} {}{}", array.label, sample, array.is_ids ? "id" : "label", value, position),
      {},
      {}};
  if (array.is_ids)
    return error
        .fact(fmt::format("the Embedding that reads this input has {} rows: ids are whole numbers from 0 to {}",
                          array.classes, array.classes - 1))
        .remedy("correct the ids, or give the Embedding a larger input_dim");
  error.fact(array.classes == 0 ? "labels are whole numbers from 0"
                                : fmt::format("the output has {} classes: labels are whole numbers from 0 to {}",
                                              array.classes, array.classes - 1));
  if (array.classes > 0 && value == fmt::format("{}", array.classes))
    return error.remedy("if the labels count from 1, subtract 1");
  return error.remedy("correct the labels, or give the model's last layer more outputs");
}

}  // namespace plimsoll::engine
