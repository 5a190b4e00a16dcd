// What a machine must have before a GPU of it can be used: a driver that is new enough, and NVIDIA's libraries.
#pragma once

#include <vector>

#include "base/error.h"

namespace plimsoll::engine::cuda {

// P603 where there is no driver, or one too old for the runtime in this program. Makes no context.
Status check_driver();
// P603 that names every library that is missing, with what installs it.
Status check_libraries();
// The same one by one, and NVML, without which only the count of memory is less exact.
std::vector<Error> missing_libraries();

}  // namespace plimsoll::engine::cuda
