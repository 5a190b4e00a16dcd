#include <oneapi/dnnl/dnnl.h>

#include "backends/cpu/simd/cells.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

const Simd& simd() {
  static const Simd& chosen = []() -> const Simd& {
    const auto allowed = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
    const auto may = [&](dnnl_cpu_isa_t isa) {
      return (allowed & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
    };
    if (may(dnnl_cpu_isa_avx512_core) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return avx512::kSimd;
    }
    if (may(dnnl_cpu_isa_avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
      return avx2::kSimd;
    return baseline::kSimd;
  }();
  return chosen;
}

const CellSimd& cell_simd() {
  if (&simd() == &avx512::kSimd) return avx512::kCellSimd;
  return &simd() == &avx2::kSimd ? avx2::kCellSimd : baseline::kCellSimd;
}

}  // namespace plimsoll::engine::cpu
