// Asynchronous copies to shared memory (cp.async), which run while a block computes; compute capability 8.0.
#pragma once

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

// Starts a copy of 16 bytes to shared memory: the first `bytes` from `from`, then zeros. `from` must be a valid address
// even if `bytes` is 0.
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

// Waits until all copies are complete except those of the last kGroups groups. end_copies() ends a group.
template <int kGroups>
__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// The largest amount of shared memory that a block can opt in to.
inline int most_shared() {
  int device = 0, bytes = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
  return known ? bytes : 0;
}

// Allows a kernel to use that amount of shared memory. All launches of a kernel set the same value, whatever each of
// them uses.
template <typename Kernel>
void allow_most_shared(Kernel kernel) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared());
}

}  // namespace plimsoll::engine::cuda
