// Helpers of all kernels: packs of elements, float32 arithmetic on any element type, sums over warps and blocks, and
// fast division of indices.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>
#include <cstring>

#include "backends/cuda/common/element.h"
#include "backends/cuda/common/numbers.cuh"

namespace plimsoll::engine::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Calls f.operator()<T>() with the element's type.
template <typename F>
void with_element(Element element, F f) {
  if (element == Element::kF32) f.template operator()<float>();
  if (element == Element::kF16) f.template operator()<__half>();
  if (element == Element::kBF16) f.template operator()<__nv_bfloat16>();
}

// A launch with an invalid configuration is our bug; builds with asserts catch it here.
inline void check_launch() {
  assert(cudaPeekAtLastError() == cudaSuccess);
}

// N adjacent elements, moved by one instruction (by several above 16 bytes).
template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
  T v[N];
};
// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <int kBytes>
struct Raw;
template <>
struct Raw<1> {
  using Type = uint8_t;
};
template <>
struct Raw<2> {
  using Type = uint16_t;
};
template <>
struct Raw<4> {
  using Type = uint32_t;
};
template <>
struct Raw<8> {
  using Type = uint2;
};
template <>
struct Raw<16> {
  using Type = uint4;
};

// Moves full-width words: left to itself, the compiler may move the elements one by one.
template <int N, typename T>
__device__ inline Pack<T, N> load_pack(const T* from) {
  constexpr int kBytes = sizeof(T) * N > 16 ? 16 : static_cast<int>(sizeof(T)) * N;
  constexpr int kWords = static_cast<int>(sizeof(T)) * N / kBytes;
  using Word = typename Raw<kBytes>::Type;
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const Word word = reinterpret_cast<const Word*>(from)[i];
    memcpy(reinterpret_cast<char*>(pack.v) + i * kBytes, &word, kBytes);
  }
  return pack;
}

template <typename T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  constexpr int kBytes = sizeof(T) * N > 16 ? 16 : static_cast<int>(sizeof(T)) * N;
  constexpr int kWords = static_cast<int>(sizeof(T)) * N / kBytes;
  using Word = typename Raw<kBytes>::Type;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    Word word;
    memcpy(&word, reinterpret_cast<const char*>(pack.v) + i * kBytes, kBytes);
    reinterpret_cast<Word*>(to)[i] = word;
  }
}

// Division by a divisor known before the launch, for numerators below 2^31 (Granlund and Montgomery 1994).
struct Divider {
  uint32_t divisor = 1, magic = 1, shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    assert(d > 0 && d < (int64_t{1} << 31));
    while ((int64_t{1} << shift) < d) ++shift;
    magic = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
  // Returns the quotient; `n` becomes the remainder.
  __device__ uint32_t split(uint32_t& n) const {
    const uint32_t q = quotient(n);
    n -= q * divisor;
    return q;
  }
};

template <typename T>
__device__ inline T warp_sum(T v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}

// The sum over the block, returned in every thread. `scratch` has 32 elements; all threads must call it.
template <typename T>
__device__ inline T block_sum(T v, T* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  v = warp_sum(v);
  __syncthreads();  // an earlier sum may still be in use
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  return warp_sum(lane < warps ? scratch[lane] : T(0));
}

// Calls f.operator()<T, N>() with packs of 16 bytes if the channels divide into them, else with single elements.
template <typename F>
void with_packs(Element element, int channels, F f) {
  with_element(element, [&]<typename T>() {
    if (channels % kPack<T> == 0)
      f.template operator()<T, kPack<T>>();
    else
      f.template operator()<T, 1>();
  });
}

inline unsigned blocks_for(int64_t items, int threads) {
  return static_cast<unsigned>((items + threads - 1) / threads);
}

inline bool is_aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace plimsoll::engine::cuda
