// Requirements for using a GPU: a recent enough driver, and NVIDIA's libraries.
#pragma once

#include <vector>

#include "base/error.h"

namespace plimsoll::engine::cuda {

// Fails with P603 if there is no driver, or if it is too old for the CUDA runtime in this program. Creates no context.
Status check_driver();
// Fails with a P603 that lists every missing library with its remedy.
Status check_libraries();
// One error per missing library. Includes NVML, which is optional: without it memory is only counted less exactly.
std::vector<Error> missing_libraries();

}  // namespace plimsoll::engine::cuda
