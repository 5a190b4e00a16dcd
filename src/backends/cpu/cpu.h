// The CPU backend: float32 kernels from oneDNN and our own vectorised kernels.
//
// Activations are row-major (NHWC); convolution weights and their gradients use the blocked layouts oneDNN prefers. A
// layout's name is a text from which the memory descriptor can be rebuilt (onednn/layout.h). The plan provides all
// scratch memory: oneDNN runs in user scratchpad mode with its primitive cache off, and kernels known to allocate
// memory themselves are not offered.
#pragma once

#include <memory>

#include "device/kernel.h"

namespace plimsoll::engine {

// `threads` is the number of OpenMP threads every kernel uses. Offers depend on it (scratchpad sizes do), so plan and
// run with the same number.
std::unique_ptr<Backend> make_cpu_backend(int threads);
// For tests: nodes in half precision compute one piece of the batch after the other, of a few samples.
std::unique_ptr<Backend> make_cpu_backend_of_small_pieces(int threads);

}  // namespace plimsoll::engine
