// Tensors for the op tests: owned memory between sentinels, and the distributions that OpCase names.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine::testing {

// Memory with a guard before and after it. All bytes start as 0xFF, which are NaNs, so that elements that were not
// written are noticed.
class Buffer {
 public:
  explicit Buffer(Bytes bytes = 0)
      : bytes_(bytes),
        memory_(static_cast<char*>(std::aligned_alloc(kAlignment, static_cast<size_t>(align_up(bytes) + 2 * kGuard)))) {
    std::memset(memory_.get(), kPattern, static_cast<size_t>(align_up(bytes) + 2 * kGuard));
    if (bytes > 0) std::memset(data(), 0xFF, static_cast<size_t>(bytes));
  }

  void* data() const { return memory_.get() + kGuard; }
  Bytes bytes() const { return bytes_; }
  // The whole memory with its guards, as it is copied to a device and back. data() is kGuard bytes after it.
  char* image() const { return memory_.get(); }
  Bytes image_bytes() const { return align_up(bytes_) + 2 * kGuard; }
  static constexpr Bytes kGuard = 256;

  bool intact() const {
    const auto is_pattern = [](char c) { return c == kPattern; };
    const char* const begin = memory_.get();
    const char* const end = begin + kGuard + bytes_;
    return std::all_of(begin, begin + kGuard, is_pattern) &&
           std::all_of(end, begin + align_up(bytes_) + 2 * kGuard, is_pattern);
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static constexpr char kPattern = 0x5A;
  Bytes bytes_;
  std::unique_ptr<char, Free> memory_;
};

// Elements as doubles, whatever the dtype. Tests draw, compare and convert these.
struct Tensor {
  TensorType type;
  std::vector<double> values;
};

// The upper half of a float32, rounded half to even.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(double value) {
    const auto narrow = static_cast<float>(value);
    uint32_t word = 0;
    std::memcpy(&word, &narrow, sizeof word);
    bits = static_cast<uint16_t>(std::isnan(value) ? 0x7FFF : (word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  explicit operator double() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value = 0;
    std::memcpy(&value, &word, sizeof value);
    return static_cast<double>(value);
  }
};

template <typename F>
void visit_dtype(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kFloat16:
      return f(_Float16{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kUInt8:
      return f(uint8_t{});
    default:
      throw std::logic_error("a dtype the op tests do not use");
  }
}

inline void store(const Tensor& tensor, void* to) {
  visit_dtype(tensor.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < tensor.values.size(); ++i) static_cast<T*>(to)[i] = static_cast<T>(tensor.values[i]);
  });
}

inline Tensor load(const TensorType& type, const void* from) {
  Tensor tensor{type, std::vector<double>(static_cast<size_t>(type.shape.elements()))};
  visit_dtype(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < tensor.values.size(); ++i)
      tensor.values[i] = static_cast<double>(static_cast<const T*>(from)[i]);
  });
  return tensor;
}

// Returns the floats rounded to `rounding` (f32 for f64 too, so that every precision starts from the same numbers), in
// the wanted floating dtype.
inline Tensor rounded_as(Tensor tensor, DType floating, DType rounding) {
  if (!is_floating(tensor.type.dtype)) return tensor;
  tensor.type.dtype = floating;
  visit_dtype(is_half(rounding) ? rounding : DType::kFloat32, [&](auto zero) {
    using T = decltype(zero);
    for (double& v : tensor.values) v = static_cast<double>(static_cast<T>(v));
  });
  return tensor;
}
inline Tensor rounded_as(Tensor tensor, DType floating) {
  return rounded_as(std::move(tensor), floating, floating);
}

inline void normalise_rows(Tensor& tensor) {
  const auto k = static_cast<size_t>(tensor.type.shape.back());
  for (size_t row = 0; row < tensor.values.size(); row += k) {
    double sum = 0;
    for (size_t i = 0; i < k; ++i) sum += tensor.values[row + i];
    for (size_t i = 0; i < k; ++i) tensor.values[row + i] /= sum;
  }
}

// A shuffled ramp over [-1, 1] that avoids 0: there are no ties, and no element is closer to a kink at 0 than half a
// step.
inline void draw_distinct(Tensor& tensor, std::mt19937_64& random) {
  const auto n = static_cast<double>(tensor.values.size());
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = (static_cast<double>(i) + (std::fmod(n, 2) == 1 ? 0.25 : 0.5)) * 2 / n - 1;
  std::shuffle(tensor.values.begin(), tensor.values.end(), random);
}

// Draws from one of OpCase's distributions, rounded to f32, so that every precision starts from the same numbers.
inline Tensor draw(const TensorType& type, const std::string& fill, std::mt19937_64& random) {
  Tensor tensor{type, std::vector<double>(static_cast<size_t>(type.shape.elements()), 0.0)};
  const auto colon = fill.find(':');
  const std::string kind = fill.substr(0, colon), argument = colon == std::string::npos ? "" : fill.substr(colon + 1);
  const auto each = [&](auto draw_one) { std::generate(tensor.values.begin(), tensor.values.end(), draw_one); };
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  if (kind == "normal") {
    each([&] { return normal(random); });
  } else if (kind == "uniform") {
    each([&] { return uniform(random); });
  } else if (kind == "small") {
    each([&] { return uniform(random) / 8; });
  } else if (kind == "symmetric") {  // small numbers of both signs
    each([&] { return (uniform(random) - 0.5) / 4; });
  } else if (kind == "positive") {
    each([&] { return uniform(random) + 0.1; });
  } else if (kind == "distinct") {
    draw_distinct(tensor, random);
  } else if (kind == "labels") {
    std::uniform_int_distribution<int64_t> labels(0, std::stoll(argument) - 1);
    each([&] { return static_cast<double>(labels(random)); });
  } else if (kind == "integers") {  // of both signs
    const int64_t most = std::stoll(argument);
    std::uniform_int_distribution<int64_t> integers(-most, most);
    each([&] { return static_cast<double>(integers(random)); });
  } else if (kind == "onehot") {
    const auto k = static_cast<size_t>(type.shape.back());
    for (size_t row = 0; row < tensor.values.size(); row += k) tensor.values[row + random() % k] = 1;
  } else if (kind == "probabilities") {
    each([&] { return uniform(random) + 0.1; });
    normalise_rows(tensor);
  } else if (kind == "unbounded") {  // contains an infinity, its negative and a NaN
    each([&] { return normal(random); });
    const double odd[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < tensor.values.size(); i += 5) tensor.values[i] = odd[i / 5 % 3];
  } else if (kind == "value") {
    std::fill(tensor.values.begin(), tensor.values.end(), std::stod(argument));
  } else if (kind == "step") {
    tensor.values[0] = std::stod(argument);
    if (tensor.values.size() > 1) tensor.values[1] = std::stod(argument.substr(argument.find(',') + 1));
  } else if (kind != "zero") {
    throw std::logic_error("no draw is named " + fill);
  }
  return rounded_as(std::move(tensor), type.dtype);
}

}  // namespace plimsoll::engine::testing
