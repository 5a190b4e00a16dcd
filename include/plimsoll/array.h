/// @file
/// Arrays that go into and come out of a model.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "plimsoll/error.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// Returns Keras's name of an element type, such as "float32" for float. The name is empty for a type that no array
/// can have.
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

/// A type that the elements of an array can have.
template <typename T>
concept Element = !dtype_of<T>().empty();

/// A container that lays its elements out in one piece, such as std::vector<float> or std::span<const int32_t>.
template <typename Range>
concept ElementRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    Element<std::ranges::range_value_t<Range>>;

/// A container that outlives the expression in which it is used: a named object, or a view such as std::span. A view of
/// a temporary container does not compile.
template <typename Range>
concept LastingRange = ElementRange<std::remove_cvref_t<Range>> &&
    (std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<std::remove_cvref_t<Range>>);

/// The lengths of an array's dimensions. The batch comes first: {32, 28, 28, 1}.
using Dims = std::vector<int64_t>;

/// A row-major array in memory that the caller owns.
///
/// A view knows how many elements it has, and every call that takes one compares that number with the shape before it
/// reads anything. The description of each call says how long the memory must stay valid.
class ArrayView {
 public:
  /// Makes an empty view, which means that the array is not given.
  ArrayView() = default;

  /// Makes a view of a container, with one dimension.
  template <LastingRange Range>
  ArrayView(Range&& values)  // NOLINT(google-explicit-constructor): a vector is an array
      : ArrayView(values, {static_cast<int64_t>(std::ranges::size(values))}) {}

  /// Makes a view of a container as an array of this shape. If the shape has another number of elements, the call that
  /// takes the view fails with P402.
  template <LastingRange Range>
  ArrayView(Range&& values, Dims shape)
      : data_(std::ranges::data(values)),
        dtype_(dtype_of<std::ranges::range_value_t<std::remove_cvref_t<Range>>>()),
        elements_(static_cast<int64_t>(std::ranges::size(values))),
        shape_(std::move(shape)) {}

  /// Makes a view of elements whose type does not exist in C++: `ArrayView(bits, count, "float16", {32, 10})`. The
  /// memory must hold `count` elements.
  ArrayView(const void* data, int64_t count, std::string_view dtype, Dims shape)
      : data_(data), dtype_(dtype), elements_(count), shape_(std::move(shape)) {}

  /// Returns whether there is an array to read.
  bool given() const { return data_ != nullptr; }
  /// The first element.
  const void* data() const { return data_; }
  /// Keras's name of the element type.
  std::string_view dtype() const { return dtype_; }
  /// The number of elements in memory.
  int64_t elements() const { return elements_; }
  /// The lengths of the dimensions.
  const Dims& shape() const { return shape_; }

 private:
  const void* data_ = nullptr;
  std::string_view dtype_ = "float32";
  int64_t elements_ = 0;
  Dims shape_;
};

/// An array that owns its memory. `predict` and `weight` return such arrays.
class Array {
 public:
  /// An array without elements.
  Array() = default;

  /// Returns an array of zeros. Fails with P402 if a length is negative, the number of elements overflows, or the dtype
  /// does not exist. Fails with P604 if the system is out of memory.
  static Result<Array> zeros(const Dims& shape, std::string_view dtype = "float32");

  /// Returns a copy of the elements of a view. Fails with P402 if the view is not valid.
  static Result<Array> copy_of(const ArrayView& view);

  /// Keras's name of the element type.
  const std::string& dtype() const { return dtype_; }
  /// The lengths of the dimensions.
  const Dims& shape() const { return shape_; }
  /// The number of elements.
  int64_t elements() const { return elements_; }
  /// The elements as bytes.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The elements as writable bytes.
  std::span<std::byte> bytes() { return bytes_; }

  /// Returns the elements. Fails with P402 if T is not the element type.
  template <Element T>
  Result<std::span<const T>> values() const {
    PLIMSOLL_TRY(check(dtype_of<T>()));
    return std::span<const T>(reinterpret_cast<const T*>(bytes_.data()), static_cast<size_t>(elements_));
  }
  /// Returns the elements for writing. Fails with P402 if T is not the element type.
  template <Element T>
  Result<std::span<T>> values() {
    PLIMSOLL_TRY(check(dtype_of<T>()));
    return std::span<T>(reinterpret_cast<T*>(bytes_.data()), static_cast<size_t>(elements_));
  }

  /// Returns a view of the array. The view is valid until the array changes or is destroyed.
  operator ArrayView() const& {  // NOLINT(google-explicit-constructor): an array can be viewed
    return {bytes_.data(), elements_, dtype_, shape_};
  }
  operator ArrayView() const&& = delete;  ///< A view of a temporary array does not compile.
  /// Returns a view of `count` rows (indices of the first dimension), starting at row `first`. Rows beyond the end are
  /// left out.
  ArrayView rows(int64_t first, int64_t count) const&;
  ArrayView rows(int64_t first, int64_t count) const&& = delete;  ///< A view of a temporary array does not compile.

 private:
  Result<void> check(std::string_view wanted) const;

  std::string dtype_ = "float32";
  Dims shape_ = {0};
  int64_t elements_ = 0;
  std::vector<std::byte> bytes_;
};

/// Returns float32 numbers from the uniform distribution over [0, 1). The same seed gives the same numbers. The array
/// is empty if a length is not above 0.
Array random_uniform(const Dims& shape, uint64_t seed);

/// Returns int32 numbers from the uniform distribution over 0 to limit - 1. The same seed gives the same numbers. The
/// array is empty if the limit or a length is not above 0.
Array random_integers(int32_t limit, const Dims& shape, uint64_t seed);

/// An array with the name of its input or output of the model. Without a name, the position in the list decides.
struct NamedArray {
  std::string name;  ///< The input's or output's name, or "".
  ArrayView array;   ///< The elements.

  /// An array without a name.
  template <typename T>
  requires(std::convertible_to<T, ArrayView> && !std::same_as<std::remove_cvref_t<T>, NamedArray>)
      NamedArray(T&& values)  // NOLINT(google-explicit-constructor): an array may go without a name
      : array(std::forward<T>(values)) {}
  /// An array for the input or output of this name.
  NamedArray(std::string of, ArrayView values) : name(std::move(of)), array(std::move(values)) {}
};

/// The arrays for a model's inputs or outputs: one array, several in the model's order, or several by name, as in
/// `{{"image", pixels}, {"age", ages}}`.
class Arrays {
 public:
  /// No arrays.
  Arrays() = default;
  /// One array, for a model with one input or output.
  template <typename T>
  requires(std::convertible_to<T, ArrayView> && !std::same_as<std::remove_cvref_t<T>, Arrays>)
      Arrays(T&& values)  // NOLINT(google-explicit-constructor): one array is enough for one input
      : list_{NamedArray(std::forward<T>(values))} {}
  /// Several arrays.
  Arrays(std::initializer_list<NamedArray> list) : list_(list) {}
  /// Several arrays.
  explicit Arrays(std::vector<NamedArray> list) : list_(std::move(list)) {}

  /// Returns whether no array is given.
  bool empty() const { return list_.empty(); }
  /// The arrays in their given order.
  const std::vector<NamedArray>& list() const { return list_; }

 private:
  std::vector<NamedArray> list_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
