// Element types for kernels, without graph headers so that .cu files compile quickly.
#pragma once

#include <cstdint>

namespace plimsoll::engine::cuda {

enum class Element : uint8_t { kF32, kF16, kBF16 };

}  // namespace plimsoll::engine::cuda
