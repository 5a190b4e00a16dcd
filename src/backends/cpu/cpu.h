// The CPU backend: float32 kernels from oneDNN and own vectorised ones.
//
// Activations are row-major (NHWC); convolution weights and their gradients take the blocked layouts oneDNN asks for.
// Layout names are text a memory descriptor is rebuilt from (layout.h). All scratch is granted by the plan: oneDNN runs
// in user scratchpad mode with its primitive cache off, and kernels known to allocate on their own are not offered.
#pragma once

#include <memory>

#include "device/kernel.h"

namespace plimsoll::engine {

// `threads` is how many OpenMP threads every kernel uses; offers depend on it (scratchpads do), so plan and run with
// the same.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace plimsoll::engine
