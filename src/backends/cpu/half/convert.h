// Conversions between float32 and the dtype of a value: float32 itself or half precision.
#pragma once

#include <cstring>

#include "backends/cpu/simd/simd.h"
#include "base/tensor.h"

namespace plimsoll::engine::cpu {

inline void widen(DType dtype, const void* from, float* to, int64_t n) {
  if (dtype == DType::kBFloat16) return simd().widen_bf16(static_cast<const uint16_t*>(from), to, n);
  if (dtype == DType::kFloat16) return simd().widen_f16(static_cast<const uint16_t*>(from), to, n);
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

inline void narrow(DType dtype, const float* from, void* to, int64_t n) {
  if (dtype == DType::kBFloat16) return simd().narrow_bf16(from, static_cast<uint16_t*>(to), n);
  if (dtype == DType::kFloat16) return simd().narrow_f16(from, static_cast<uint16_t*>(to), n);
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace plimsoll::engine::cpu
