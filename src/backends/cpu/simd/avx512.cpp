// Our kernels for AVX-512. CMakeLists.txt sets the compiler options of that instruction set for this file.
#include <immintrin.h>

#include "backends/cpu/simd/cells.h"
#include "backends/cpu/simd/simd.h"

#define PLIMSOLL_SIMD_NAME "avx512"

namespace plimsoll::engine::cpu::avx512 {
#include "backends/cpu/simd/table.inl"
}  // namespace plimsoll::engine::cpu::avx512
