// Compiles fused element-wise kernels for the card in use. Each is compiled once and kept in the cache folder.
#pragma once

#include <span>
#include <string>

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

// Compiles `source` to machine code for compute capability `capability`; needs no GPU.
Result<std::string> compile_source(const std::string& source, int capability);

// Starts threads that compile the fused kernels among `nodes` that are in no cache. load_fused_kernel() waits for the
// one it needs, so kernels are compiled while cuDNN's engines are tried.
void compile_fused_kernels(std::span<const UnboundNode> nodes, int capability);

// Compiles and loads the kernel `pass` of a source. Equal sources share one kernel, which lives as long as the process.
Result<cudaKernel_t> load_fused_kernel(const std::string& source, int capability);

BoundKernel bind_fused(Context& context, const BoundNode& node);

}  // namespace plimsoll::engine::cuda
