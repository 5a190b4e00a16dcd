// The activation functions of recurrent cells. Vectorised code includes this header too, so it has no functions.
#pragma once

#include <cstdint>

namespace plimsoll::engine {

// Functions whose slope is a function of their result, so that the backward pass needs the result alone.
enum class CellFunction : uint8_t {
  kLinear,
  kRelu,
  kRelu6,
  kLeakyRelu,
  kSigmoid,
  kHardSigmoid,
  kTanh,
  kHardTanh,
  kSoftsign,
  kSoftplus,
  kElu,
  kSelu,
  kExponential,
};

inline constexpr float kSeluScale = 1.05070098735548049F, kSeluAlpha = 1.67326324235437728F;
inline constexpr float kLeakySlope = 0.2F;

}  // namespace plimsoll::engine
