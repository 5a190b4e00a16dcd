// Arithmetic on sizes and offsets from outside the process. If a result overflows, it is nullopt, never a wrong number.
// Every sum or product of a number from a file, a flag, an API call or another process must be computed here.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace plimsoll::engine {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T sum{};
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional<T>(sum);
}

template <std::integral T>
constexpr std::optional<T> checked_multiply(T a, T b) {
  T product{};
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional<T>(product);
}

// Returns the next multiple of `alignment`, which must be positive; nullopt if `bytes` is negative.
constexpr std::optional<int64_t> checked_align_up(int64_t bytes, int64_t alignment) {
  if (bytes < 0) return std::nullopt;
  const auto raised = checked_add(bytes, alignment - 1);
  return raised ? std::optional(*raised / alignment * alignment) : std::nullopt;
}

// Returns whether [offset, offset + bytes) lies in [0, size). No sum is computed, so no argument can overflow.
constexpr bool lies_within(int64_t offset, int64_t bytes, int64_t size) {
  return offset >= 0 && bytes >= 0 && size >= 0 && bytes <= size && offset <= size - bytes;
}

// A sum that remembers whether it ever overflowed.
class CheckedSum {
 public:
  constexpr CheckedSum& operator+=(int64_t term) {
    if (sum_) sum_ = checked_add(*sum_, term);
    return *this;
  }
  constexpr CheckedSum& operator+=(const std::optional<int64_t>& term) {
    if (!term) sum_.reset();
    return term ? *this += *term : *this;
  }
  constexpr const std::optional<int64_t>& value() const { return sum_; }

 private:
  std::optional<int64_t> sum_ = 0;
};

}  // namespace plimsoll::engine
