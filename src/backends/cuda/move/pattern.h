// The bits of a constant in any dtype, for kernels that repeat it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/tensor.h"

namespace plimsoll::engine::cuda {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename T>
uint64_t integer_bits(double value) {
  if (std::isnan(value)) return 0;
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return bits_of(std::numeric_limits<T>::max());
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return bits_of(std::numeric_limits<T>::min());
  return bits_of(static_cast<T>(value));
}

inline uint64_t pattern_of(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return bits_of(static_cast<float>(value));
    case DType::kFloat64:
      return bits_of(value);
    case DType::kFloat16:
      return bits_of(__double2half(value));
    case DType::kBFloat16:
      return bits_of(__float2bfloat16_rn(static_cast<float>(value)));
    case DType::kInt8:
      return integer_bits<int8_t>(value);
    case DType::kInt16:
      return integer_bits<int16_t>(value);
    case DType::kInt32:
      return integer_bits<int32_t>(value);
    case DType::kInt64:
      return integer_bits<int64_t>(value);
    case DType::kUInt8:
      return integer_bits<uint8_t>(value);
    case DType::kUInt16:
      return integer_bits<uint16_t>(value);
    case DType::kUInt32:
      return integer_bits<uint32_t>(value);
    case DType::kUInt64:
      return integer_bits<uint64_t>(value);
    case DType::kBool:
      return value != 0 ? 1 : 0;
  }
  return 0;
}

}  // namespace plimsoll::engine::cuda
