// Compiles fused element-wise kernels for the card in use. Each is compiled once and kept in the cache folder.
#pragma once

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// Compiles `source` to machine code for compute capability `capability`; needs no GPU.
Result<std::string> compile_source(const std::string& source, int capability);

// Compiles and loads the kernel `pass` of a source. Equal sources share one kernel, which lives as long as the process.
Result<cudaKernel_t> load_fused_kernel(const std::string& source, int capability);

}  // namespace plimsoll::engine::cuda
