// The own kernels for AVX-512; CMakeLists.txt gives this file the compiler options of that instruction set.
#include <immintrin.h>

#include "backends/cpu/simd/simd.h"

#define PLIMSOLL_SIMD_NAME "avx512"

namespace plimsoll::engine::cpu::avx512 {
#include "backends/cpu/simd/table.inl"
}  // namespace plimsoll::engine::cpu::avx512
