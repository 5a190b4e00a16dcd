// Tensor-core matrix products of compute capability 8.0 (warp-level mma): m16n8k8 for float32, rounded to tf32, and
// m16n8k16 for half precision. A lane's position in the fragments is (g, t) = (lane / 4, lane % 4): eight groups of
// four lanes, as in the PTX manual.
#pragma once

#include <type_traits>

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

inline constexpr int kGroup = 8;  // columns (n) of one mma

// Registers of the A and B fragments. In half precision a register holds two elements, the first in its lower half.
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
  // Register r of a fragment row (0: lower half of the k step, 1: upper half), with the elements given by at(k).
  template <typename At>
  static __device__ uint32_t along(int t, int r, At at) {
    const int k = 2 * t + 8 * r;
    const T first = at(k), second = at(k + 1);  // callers rely on this order
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

// Loads four 8 x 8 matrices of half precision from shared memory, transposed (ldmatrix.trans). Lane 8 i + r passes the
// address of row r of matrix i.
template <typename T>
__device__ void load_transposed(const T* row, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(at));
}

}  // namespace plimsoll::engine::cuda
