#pragma once

#include "backends/cuda/driver/context.h"

// For functions that return a Result or Status. The runtime stores the last error until it is read; reading it here
// keeps it from being reported again by an unrelated call.
#define PLIMSOLL_CUDA(call)                                                                \
  do {                                                                                     \
    if (const cudaError_t plimsoll_code = (call); plimsoll_code != cudaSuccess) {          \
      (void)cudaGetLastError();                                                            \
      return ::plimsoll::fail(::plimsoll::engine::cuda::cuda_error(plimsoll_code, #call)); \
    }                                                                                      \
  } while (false)
