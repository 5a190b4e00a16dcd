// TensorFlow Lite's arithmetic on quantized numbers: a real factor as a 31-bit fraction and a power of two, and its two
// roundings. Results are equal to those of its reference kernels, bit for bit. No argument can overflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {

struct Multiplier {
  int32_t fraction = 0;  // of 2^31
  int shift = 0;         // above 0: to the left
};

inline Multiplier multiplier_of(double factor) {
  if (!(factor > 0) || !std::isfinite(factor)) return {};
  Multiplier made;
  const double fraction = std::frexp(factor, &made.shift);
  auto rounded = static_cast<int64_t>(std::round(fraction * static_cast<double>(int64_t{1} << 31)));
  if (rounded == int64_t{1} << 31) {
    rounded /= 2;
    ++made.shift;
  }
  if (made.shift < -31) return {};
  if (made.shift > 30) return {std::numeric_limits<int32_t>::max(), 30};
  made.fraction = static_cast<int32_t>(rounded);
  return made;
}

inline int32_t saturated(int64_t x) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(x, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

// x * factor, rounded twice as TensorFlow Lite does: half away from zero after the product, and after the shift.
inline int32_t multiply(int32_t x, Multiplier m) {
  const int32_t shifted = m.shift > 0 ? saturated(int64_t{x} * (int64_t{1} << m.shift)) : x;
  // Half of 2^31 is added before the bits are cut off: this is the rounding of both signs, as cutting rounds down.
  const auto high = static_cast<int32_t>((int64_t{shifted} * m.fraction + (int64_t{1} << 30)) >> 31);
  const int right = m.shift > 0 ? 0 : -m.shift;
  const int64_t mask = (int64_t{1} << right) - 1, remainder = high & mask;
  const int64_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);
  return static_cast<int32_t>((int64_t{high} >> right) + (remainder > threshold ? 1 : 0));
}

struct Clamp {
  int32_t low = -128, high = 127;
  int8_t operator()(int64_t x) const { return static_cast<int8_t>(std::clamp<int64_t>(x, low, high)); }
};

// The range that a fused activation leaves.
inline Clamp clamp_of(Activation activation, const Quantization& q) {
  Clamp c;
  const auto at = [&](double real) {
    return static_cast<int32_t>(std::clamp(q.zero() + std::round(real / double{q.scale()}), -128.0, 127.0));
  };
  if (activation == Activation::kRelu || activation == Activation::kRelu6) c.low = at(0);
  if (activation == Activation::kRelu6) c.high = at(6);
  if (activation == Activation::kReluN1To1) c = {at(-1), at(1)};
  return c;
}

inline int8_t quantized(float x, float scale, int32_t zero) {
  const float q = std::round(x / scale) + static_cast<float>(zero);
  return static_cast<int8_t>(std::fmin(std::fmax(q, -128.0F), 127.0F));
}

}  // namespace plimsoll::engine::lite
