// Passes compiled for the card at hand, once each, and kept in the cache folder.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// The machine code of `source` for compute capability `capability`; needs no GPU.
Result<std::string> compile_source(const std::string& source, int capability);

// The kernel `pass` of a source, loaded. Equal sources share one; it lives as long as the process.
Result<cudaKernel_t> load_fused_kernel(const std::string& source, int capability);

}  // namespace plimsoll::engine::cuda
