#include "formats/hdf5/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace plimsoll::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are converted to little-endian memory");

template <typename T>
T load(const std::byte* at, bool swapped) {
  std::array<std::byte, sizeof(T)> raw;
  std::memcpy(raw.data(), at, sizeof(T));
  if (swapped) std::ranges::reverse(raw);
  return std::bit_cast<T>(raw);
}

double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa | 0x400, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t double_to_half(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  if (size == 0) return sign;
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int unit = std::max(exponent - 11, -24);  // the power of two of the last bit
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -unit)));
  // If the mantissa rounds up to the next power of two, it carries into the exponent, which is correct.
  return static_cast<uint16_t>(sign | (static_cast<unsigned>(unit + 24) * 0x400 + steps));
}

// Converts between native numeric types. Comparing as long double is exact for all of them.
template <typename To, typename From>
To number_as(From value) {
  if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    if constexpr (std::is_floating_point_v<From>)
      if (std::isnan(value)) return 0;
    const auto exact = static_cast<long double>(value);
    if (exact <= static_cast<long double>(Limits::min())) return Limits::min();
    if (exact >= static_cast<long double>(Limits::max())) return Limits::max();
    return static_cast<To>(value);
  }
}

template <typename To, typename From>
void convert_numbers(std::span<const std::byte> from, bool swapped, std::byte* to) {
  const size_t count = from.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    const To value = number_as<To>(load<From>(from.data() + i * sizeof(From), swapped));
    std::memcpy(to + i * sizeof(To), &value, sizeof(To));
  }
}

// Calls `use` with a value of the dtype's C++ type. Half precision has none.
template <typename Use>
void with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat32:
      return use(float{});
    case DType::kFloat64:
      return use(double{});
    case DType::kInt8:
      return use(int8_t{});
    case DType::kInt16:
      return use(int16_t{});
    case DType::kInt32:
      return use(int32_t{});
    case DType::kInt64:
      return use(int64_t{});
    case DType::kUInt8:
      return use(uint8_t{});
    case DType::kUInt16:
      return use(uint16_t{});
    case DType::kUInt32:
      return use(uint32_t{});
    case DType::kUInt64:
      return use(uint64_t{});
    default:
      return;
  }
}

void same_type(const Hdf5Element& element, std::span<const std::byte> from, std::byte* to) {
  const auto size = static_cast<size_t>(element.bytes);
  std::memcpy(to, from.data(), from.size());
  if (element.dtype == DType::kBool)
    for (size_t i = 0; i < from.size(); ++i) to[i] = std::byte{to[i] != std::byte{0}};
  if (element.big_endian && size > 1)
    for (size_t at = 0; at + size <= from.size(); at += size) std::reverse(to + at, to + at + size);
}

// Converts half precision through float64, which represents every half-precision value exactly.
void convert_half(const Hdf5Element& element, std::span<const std::byte> from, DType dtype, std::byte* to) {
  const auto size = static_cast<size_t>(element.bytes), size_to = static_cast<size_t>(size_of(dtype));
  for (size_t i = 0; i < from.size() / size; ++i) {
    const std::byte* const at = from.data() + i * size;
    double value = 0;
    if (element.dtype == DType::kFloat16)
      value = half_to_double(load<uint16_t>(at, element.big_endian));
    else
      with_type(*element.dtype,
                [&](auto kind) { value = static_cast<double>(load<decltype(kind)>(at, element.big_endian)); });
    if (dtype == DType::kFloat16) {
      const uint16_t bits = double_to_half(value);
      std::memcpy(to + i * size_to, &bits, sizeof(bits));
    } else {
      with_type(dtype, [&](auto kind) {
        const auto number = number_as<decltype(kind)>(value);
        std::memcpy(to + i * size_to, &number, sizeof(number));
      });
    }
  }
}

Status place_fill(const Hdf5Dataset& dataset, const Hdf5Place& place) {
  const int64_t element = dataset.element.bytes;
  const int64_t count = std::max<int64_t>(1, std::min(dataset.bytes, kStreamBuffer) / element);
  std::vector<std::byte> buffer(static_cast<size_t>(count * element));
  for (int64_t i = 0; i < count && !dataset.fill.empty(); ++i)
    std::ranges::copy(dataset.fill, buffer.begin() + i * element);
  for (int64_t done = 0; done < dataset.bytes; done += static_cast<int64_t>(buffer.size())) {
    const auto size = std::min<int64_t>(dataset.bytes - done, static_cast<int64_t>(buffer.size()));
    PLIMSOLL_TRY(place(done, std::span<const std::byte>(buffer).first(static_cast<size_t>(size))));
  }
  return {};
}

Status read_contiguous(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(dataset.bytes, kStreamBuffer)));
  for (int64_t done = 0; done < dataset.bytes;) {
    const std::span piece(buffer.data(), static_cast<size_t>(std::min(dataset.bytes - done, kStreamBuffer)));
    PLIMSOLL_TRY(reader.elements(dataset.address + static_cast<uint64_t>(done), piece));
    PLIMSOLL_TRY(place(done, piece));
    done += static_cast<int64_t>(piece.size());
  }
  return {};
}

}  // namespace

void convert_elements(const Hdf5Element& element, std::span<const std::byte> from, DType dtype, std::byte* to) {
  if (element.dtype == dtype) return same_type(element, from, to);
  if (element.dtype == DType::kFloat16 || dtype == DType::kFloat16) return convert_half(element, from, dtype, to);
  with_type(*element.dtype, [&](auto stored) {
    with_type(dtype,
              [&](auto wanted) { convert_numbers<decltype(wanted), decltype(stored)>(from, element.big_endian, to); });
  });
}

Status read_elements(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place) {
  if (dataset.bytes == 0) return {};
  if (dataset.storage == Hdf5Storage::kCompact)
    return place(0, dataset.compact.first(static_cast<size_t>(dataset.bytes)));
  if (dataset.address == kHdf5Nowhere) return place_fill(dataset, place);
  if (dataset.storage == Hdf5Storage::kContiguous) return read_contiguous(reader, dataset, place);
  PLIMSOLL_TRY(place_fill(dataset, place));
  return read_chunks(reader, dataset, place);
}

}  // namespace plimsoll::engine
