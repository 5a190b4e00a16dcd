// Arrays that the caller owns, as the C++ interface takes them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <type_traits>

#pragma GCC visibility push(default)
namespace plimsoll {

// Keras's name of an element type, "float32" for float; empty for types that no array has.
template <typename T>
constexpr std::string_view dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, bool>) return "bool";
  if constexpr (std::same_as<U, float>) return "float32";
  if constexpr (std::same_as<U, double>) return "float64";
  if constexpr (std::signed_integral<U>)
    return sizeof(U) == 1 ? "int8" : sizeof(U) == 2 ? "int16" : sizeof(U) == 4 ? "int32" : "int64";
  if constexpr (std::unsigned_integral<U>)
    return sizeof(U) == 1 ? "uint8" : sizeof(U) == 2 ? "uint16" : sizeof(U) == 4 ? "uint32" : "uint64";
  return "";
}

template <typename T>
concept Element = !dtype_of<T>().empty();

// Row-major elements in memory that outlives the call it is given to. Made from a std::vector, std::array or std::span
// it knows how many there are, and that is checked. A plain pointer does not say: its elements are taken on trust.
struct ArrayView {
  static constexpr int64_t kUnknown = -1;

  const void* data = nullptr;
  std::string_view dtype = "float32";  // Keras's name
  int64_t elements = kUnknown;

  ArrayView() = default;
  ArrayView(std::nullptr_t) {}  // NOLINT: an array that is not given
  template <Element T>
  ArrayView(const T* values) : data(values), dtype(dtype_of<T>()) {}  // NOLINT: as its comment says
  template <Element T>
  ArrayView(const T* values, int64_t count) : data(values), dtype(dtype_of<T>()), elements(count) {}
  template <std::ranges::contiguous_range Range>
  requires std::ranges::sized_range<Range> && Element<std::ranges::range_value_t<Range>> ArrayView(
      const Range& values)  // NOLINT: a vector is an array
      : data(std::ranges::data(values)),
        dtype(dtype_of<std::ranges::range_value_t<Range>>()),
        elements(static_cast<int64_t>(std::ranges::size(values))) {}
  // For element types that C++ has no name for: ArrayView(bits, "float16", count).
  ArrayView(const void* values, std::string_view keras_dtype, int64_t count)
      : data(values), dtype(keras_dtype), elements(count) {}
};

}  // namespace plimsoll
#pragma GCC visibility pop
