// One GPU in use: its streams and library handles. Everything a binder needs to make a kernel of a planned node.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "backends/cuda/card.h"
#include "backends/cuda/runtime/held.h"
#include "device/kernel.h"

namespace plimsoll::cuda {

struct Context {
  Card card;
  int ordinal = 0;
  HeldMemory held;                // what this process holds of the card
  cudaStream_t stream = nullptr;  // kernels are enqueued here, and captured from here
  cudaStream_t copies = nullptr;
  cudnnHandle_t dnn = nullptr;      // on `stream`
  cublasLtHandle_t blas = nullptr;  // functions through libraries.h: nothing of it is linked
  // Zero between kernels: for kernels whose last block finishes the work of all. Whoever counts up sets back to zero.
  unsigned* counters = nullptr;
  static constexpr int kCounters = 16384;
};

// The error a failed call becomes: a device lost, no room, a kernel that failed.
Error cuda_error(cudaError_t code, const std::string& what);

using BoundKernel = Result<std::unique_ptr<Kernel>>;

BoundKernel bind_convolution(Context& context, const BoundNode& node);
BoundKernel bind_matmul(Context& context, const BoundNode& node);
BoundKernel bind_attention(Context& context, const BoundNode& node);
BoundKernel bind_fused(Context& context, const BoundNode& node);
BoundKernel bind_pooling(Context& context, const BoundNode& node);
BoundKernel bind_rows(Context& context, const BoundNode& node);
BoundKernel bind_sums(Context& context, const BoundNode& node);
BoundKernel bind_shape(Context& context, const BoundNode& node);
BoundKernel bind_table(Context& context, const BoundNode& node);

}  // namespace plimsoll::cuda
