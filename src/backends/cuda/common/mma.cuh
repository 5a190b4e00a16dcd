// The matrix units of compute capability 8.0: 16 rows by 8 columns at a time, over a step of 8 numbers of float32,
// which are rounded to tf32, or 16 of half precision. A lane's place in an instruction's fragments is (g, t): eight
// groups of four lanes.
#pragma once

#include <type_traits>

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

inline constexpr int kGroup = 8;  // columns of one instruction

// Registers of the A and B fragments. Of half precision a register holds two numbers, the first in its lower half.
template <typename T>
struct Matrix {
  static constexpr int kStep = 16;
  static __device__ uint32_t pack(T a, T b) {
    return static_cast<uint32_t>(bits(a)) | static_cast<uint32_t>(bits(b)) << 16;
  }
  static __device__ uint16_t bits(T v) {
    uint16_t b;
    memcpy(&b, &v, sizeof b);
    return b;
  }
  // The register `r` (0, 1: of the lower and upper half of a step) of numbers at(k).
  template <typename At>
  static __device__ uint32_t along(int t, int r, At at) {
    const int k = 2 * t + 8 * r;
    const T first = at(k), second = at(k + 1);  // in this order
    return pack(first, second);
  }
};
template <>
struct Matrix<float> {
  static constexpr int kStep = 8;
  template <typename At>
  static __device__ uint32_t along(int t, int r, At at) {
    uint32_t word;
    const float v = at(t + 4 * r);
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(v));
#else
    word = __float_as_uint(v);
#endif
    return word;
  }
};

// c += a b.
template <typename T>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
#define PLIMSOLL_MMA(shape)                                                              \
  asm("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (std::is_same_v<T, float>)
    PLIMSOLL_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
  else if constexpr (std::is_same_v<T, __half>)
    PLIMSOLL_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  else
    PLIMSOLL_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
#undef PLIMSOLL_MMA
#else
  (void)c, (void)a, (void)b;
#endif
}

// Four matrices of 8 by 8 numbers of half precision in shared memory, transposed; lane 8 i + r gives the address of row
// r of matrix i.
template <typename T>
__device__ void load_transposed(const T* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(at));
}

}  // namespace plimsoll::engine::cuda
