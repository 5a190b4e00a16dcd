#pragma once

#include "backends/cuda/driver/context.h"

// For functions that return a Result or Status.
#define PLIMSOLL_CUDA(call)                                                        \
  do {                                                                             \
    if (const cudaError_t plimsoll_code = (call); plimsoll_code != cudaSuccess)    \
      return ::plimsoll::fail(::plimsoll::cuda::cuda_error(plimsoll_code, #call)); \
  } while (false)
