// One GPU in use: its streams and library handles. It contains everything a binder needs to create the kernel of a
// planned node.
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

class CopyEnd;  // move/bind_host_copy.cpp

struct Context {
  Card card;
  int ordinal = 0;
  HeldMemory held;  // memory this process has allocated on the card
  // Errors of enqueued work. An error that a call returns at once (out of memory, a launch or copy that is not
  // possible) concerns this context only. An error that the card finds while it runs (an invalid address, a trap)
  // destroys CUDA's primary context, which all users of that card in the process share: each of them then gets the
  // error from its own calls, and none can continue.
  Failures failures;
  std::string way;                  // see GpuOptions::way
  int architecture = 0;             // code is compiled for the real card, whatever GpuOptions::as_capability is
  cudaStream_t stream = nullptr;    // kernels are enqueued here and captured from here
  cudaStream_t copies = nullptr;    // copies to the device: batches, and values offloaded to host memory
  cudaStream_t outgoing = nullptr;  // copies to the host
  cudnnHandle_t dnn = nullptr;      // uses `stream`
  cublasLtHandle_t blas = nullptr;  // called through libraries.h; the library is not linked
  // Counters that are zero between kernels, for kernels whose last block finishes the work of all blocks. A kernel that
  // increments a counter must reset it to zero.
  unsigned* counters = nullptr;
  static constexpr int kCounters = 16384;
  // Used while kernels are bound: for each address, the end of the latest copy started to it.
  std::map<void*, std::shared_ptr<CopyEnd>> copy_ends;
};

// Converts the code of a failed call to an error: device lost, out of memory, or kernel failure.
Error cuda_error(cudaError_t code, const std::string& what);
// Records in `context` any error that the runtime reports for the calls this thread just made.
void note_enqueued(Context& context, const std::string& what) noexcept;
// The same for a failed library call. A library often reports no cause, but the runtime may know it.
void note_library_failure(Context& context, Error error) noexcept;

}  // namespace plimsoll::engine::cuda
