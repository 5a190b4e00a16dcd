// Element types, shapes, and typed views of memory that they do not own.
#pragma once

#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool
};

Bytes size_of(DType dtype);
bool is_floating(DType dtype);
std::string_view name_of(DType dtype);                        // "f32", "i64", "bool": the name in graph text
std::optional<DType> dtype_from_name(std::string_view name);  // accepts both "f32" and "float32"
std::string_view keras_name(DType dtype);                     // "float32"

inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}
// The dtype in which statistics, sums and losses over tensors of `dtype` are kept.
inline DType wide(DType dtype) {
  return is_half(dtype) ? DType::kFloat32 : dtype;
}

// A Keras dtype policy: weights and optimizer state have one dtype, layers compute in another.
struct Precision {
  DType variables = DType::kFloat32, compute = DType::kFloat32;

  Precision() = default;
  Precision(DType both) : variables(both), compute(both) {}  // NOLINT: implicit, because one dtype is a policy too
  Precision(DType held, DType computed) : variables(held), compute(computed) {}
  bool is_mixed() const { return variables != compute; }
  bool operator==(const Precision&) const = default;
};
std::string to_text(const Precision& precision);  // "float32", "mixed_bfloat16"
std::optional<Precision> precision_from_text(std::string_view text);

// Static dimensions. Shapes from a file must be made with checked_shape(), so that the product cannot overflow.
struct Shape {
  std::vector<int64_t> dims;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) : dims(list) {}
  explicit Shape(std::vector<int64_t> list) : dims(std::move(list)) {}

  size_t rank() const { return dims.size(); }
  int64_t operator[](size_t i) const { return dims[i]; }
  int64_t back() const { return dims.back(); }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  bool operator==(const Shape&) const = default;
};

// Fails unless every dimension is positive and the product is at most 2^46 elements.
Result<Shape> checked_shape(std::vector<int64_t> dims, std::string_view where);
std::string to_text(const Shape& shape);  // "128,28,28,1"

struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;

  Bytes bytes() const { return shape.elements() * size_of(dtype); }
  bool operator==(const TensorType&) const = default;
};
std::string to_text(const TensorType& type);  // "f32[128,28,28,1]"

// A view of row-major memory. It does not own the memory.
struct TensorView {
  TensorType type;
  void* data = nullptr;

  template <typename T>
  T* as() const {
    assert(sizeof(T) == static_cast<size_t>(size_of(type.dtype)));
    return static_cast<T*>(data);
  }
  int64_t elements() const { return type.shape.elements(); }
};

}  // namespace plimsoll::engine
