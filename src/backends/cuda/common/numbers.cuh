// Element types of the GPU: every kernel computes in float32 and rounds to the tensor's type when it stores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/tensor.h"

namespace plimsoll::engine::cuda {

__device__ inline float to_float(float v) {
  return v;
}
__device__ inline float to_float(__half v) {
  return __half2float(v);
}
__device__ inline float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

template <typename T>
__device__ inline T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) {
  return v;
}
template <>
__device__ inline __half from_float<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

// Calls f(T{}) with the element type of a floating dtype; offers accept no other dtypes.
template <typename F>
void with_number(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat16:
      return f(__half{});
    case DType::kBFloat16:
      return f(__nv_bfloat16{});
    default:
      assert(dtype == DType::kFloat32);
      return f(float{});
  }
}

}  // namespace plimsoll::engine::cuda
