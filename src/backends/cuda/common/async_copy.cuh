// Copies into shared memory that go on while a block computes; compute capability 8.0.
#pragma once

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

// 16 bytes on their way into shared memory: the first `bytes` of them from `from`, which is something to read even
// where they are none, and zeros.
template <typename T>
__device__ void copy_pack(T* to, const T* from, int bytes) {
#if __CUDA_ARCH__ >= 800
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
#else
  (void)to, (void)from, (void)bytes;
#endif
}

__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}

// Until all copies are there but those of the last kGroups, each ended by end_copies().
template <int kGroups>
__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// What a block may have of shared memory, on request.
inline int most_shared() {
  int device = 0, bytes = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
  return known ? bytes : 0;
}

// Lets a kernel have so much. All launches of a kernel ask for the same, whatever each of them takes.
template <typename Kernel>
void allow_most_shared(Kernel kernel) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared());
}

}  // namespace plimsoll::engine::cuda
