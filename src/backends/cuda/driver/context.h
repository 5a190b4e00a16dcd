// One GPU in use: its streams and library handles. Everything a binder needs to make a kernel of a planned node.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <map>
#include <memory>
#include <string>

#include "backends/cuda/card.h"
#include "backends/cuda/driver/held.h"
#include "backends/cuda/kernels.h"
#include "device/failures.h"
#include "device/kernel.h"

namespace plimsoll::engine::cuda {

class CopyEnd;  // host_copy.cpp

struct Context {
  Card card;
  int ordinal = 0;
  HeldMemory held;  // what this process holds of the card
  // What could not be enqueued here. An error that a call returns at once (no room, a launch or a copy that cannot be)
  // is this context's alone. One that the card finds while it runs (a stray address, a trap) ends CUDA's primary
  // context, which all users of that card in the process share: each of them then learns it from its own calls, and
  // none goes on.
  Failures failures;
  std::string way;                  // GpuOptions::way
  int architecture = 0;             // that code is compiled for: the card's own, whatever `card` is taken for
  cudaStream_t stream = nullptr;    // kernels are enqueued here, and captured from here
  cudaStream_t copies = nullptr;    // towards the device: batches, and values that waited in the host's memory
  cudaStream_t outgoing = nullptr;  // towards the host
  cudnnHandle_t dnn = nullptr;      // on `stream`
  cublasLtHandle_t blas = nullptr;  // functions through libraries.h: nothing of it is linked
  // Zero between kernels: for kernels whose last block finishes the work of all. Whoever counts up sets back to zero.
  unsigned* counters = nullptr;
  static constexpr int kCounters = 16384;
  // While kernels are bound: the end of the copy that was begun last to an address.
  std::map<void*, std::shared_ptr<CopyEnd>> copy_ends;
};

// The error a failed call becomes: a device lost, no room, a kernel that failed.
Error cuda_error(cudaError_t code, const std::string& what);
// Keeps in `context` what the runtime says of the calls this thread just made for it.
void note_enqueued(Context& context, const std::string& what) noexcept;
// The same for a library that failed: it often says no more than that, and the runtime may know why.
void note_library_failure(Context& context, Error error) noexcept;

}  // namespace plimsoll::engine::cuda
