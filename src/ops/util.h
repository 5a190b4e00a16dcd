// Shared by the op files: checks for shape rules, access to a reference's tensors, and loops over independent elements.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace plimsoll::engine {

using Types = std::vector<TensorType>;
using InTypes = std::span<const TensorType>;

// Checks for one call of a shape rule. Each check returns whether no check has failed so far. The first failure is
// kept, with the op's name, what was expected, and the types given.
class InferCheck {
 public:
  InferCheck(std::string_view op, InTypes in, const Attrs& attrs) : op_(op), in_(in), attrs_(attrs) {}

  bool require(bool ok, std::string_view wanted);
  bool inputs(size_t count) { return inputs(count, count); }
  bool inputs(size_t least, size_t most);
  // Floating-point inputs of one dtype, or half precision together with float32.
  bool floats(std::initializer_list<size_t> which);
  bool all_floats();
  bool mixed_floats();  // all of one dtype, or half precision together with float32
  bool rank(size_t input, size_t rank);
  bool same_shape(size_t a, size_t b);
  bool channels(size_t vector, size_t of);  // input `vector` has the shape [C], where C is the channels of input `of`
  bool scalar(size_t input);
  bool type(size_t input, DType dtype);

  bool has(const std::string& key, std::string_view kind);          // kind: integer, real, flag, text or list
  bool list(const std::string& key, size_t length, int64_t least);  // `length` numbers, each from `least` to 2^31
  bool integer(const std::string& key, int64_t least);
  bool real(const std::string& key);
  bool optional_real(const std::string& key) { return !attrs_.has(key) || real(key); }
  bool optional_flag(const std::string& key) { return !attrs_.has(key) || has(key, "flag"); }

  const Shape& shape(size_t i) const { return in_[i].shape; }
  // Returns the outputs, or the failure that was kept. Checks shapes with checked_shape().
  Result<Types> outputs(Types types);
  Result<Types> failed() const { return tl::make_unexpected(*error_); }

 private:
  std::string op_;
  InTypes in_;
  const Attrs& attrs_;
  std::optional<Error> error_;
};

inline const double* in(const ReferenceCall& call, size_t i) {
  return call.inputs[i].as<double>();
}
inline double* out(const ReferenceCall& call, size_t i = 0) {
  return call.outputs[i].as<double>();
}

inline int64_t rows_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.elements() / shape.back();
}
inline int64_t channels_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.back();
}

// Calls body(i) for every i. The calls must be independent.
template <typename Body>
void for_each(int64_t count, int64_t work_per_item, Body body) {
  constexpr int64_t kWorthAThread = 1 << 14;
#pragma omp parallel for schedule(static) if (count > 1 && count * work_per_item > kWorthAThread)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Computes y[i] = f(i). f(i) may read y[i].
template <typename F>
void map_elements(double* y, int64_t count, F f) {
  constexpr int64_t kBlock = 4096;
  for_each((count + kBlock - 1) / kBlock, kBlock, [&](int64_t block) {
    const int64_t end = std::min(count, (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end; ++i) y[i] = f(i);
  });
}

// Computes y[row, c] = f(element index, c), for maps with channel vectors.
template <typename F>
void map_channels(double* y, int64_t rows, int64_t channels, F f) {
  for_each(rows, channels, [&](int64_t row) {
    for (int64_t c = 0; c < channels; ++c) y[row * channels + c] = f(row * channels + c, c);
  });
}

// Computes sums[c] = sum over rows of f(element index, c), in row order, so the result does not depend on the number of
// threads.
template <typename F>
void sum_channels(double* sums, int64_t rows, int64_t channels, F f) {
  constexpr int64_t kBlock = 32;
  for_each((channels + kBlock - 1) / kBlock, rows * kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(channels, begin + kBlock);
    std::fill(sums + begin, sums + end, 0.0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = begin; c < end; ++c) sums[c] += f(row * channels + c, c);
  });
}

// For an op that combines several: returns one op of the family, whose errors use the name of the combined op.
inline const OpDef& op_of(const std::vector<OpDef>& family, std::string_view name) {
  return *std::find_if(family.begin(), family.end(), [&](const OpDef& op) { return op.name == name; });
}
inline tl::unexpected<Error> failed_inside(std::string_view name, Error error) {
  error.what = fmt::format("{}: {}", name, error.what);
  return tl::make_unexpected(std::move(error));
}

// Helpers that keep each case on one line.
inline TensorType f32(std::initializer_list<int64_t> dims) {
  return {DType::kFloat32, Shape(dims)};
}
inline TensorType i32(std::initializer_list<int64_t> dims) {
  return {DType::kInt32, Shape(dims)};
}
inline TensorType i64(std::initializer_list<int64_t> dims) {
  return {DType::kInt64, Shape(dims)};
}
inline TensorType u8(std::initializer_list<int64_t> dims) {
  return {DType::kUInt8, Shape(dims)};
}
using Ints = std::vector<int64_t>;

}  // namespace plimsoll::engine
