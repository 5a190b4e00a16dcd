// The vectorised loops of recurrent layers, a table per instruction set as in simd.h.
#pragma once

#include <cstdint>

#include "ops/cell_function.h"

namespace plimsoll::engine::cpu {

struct CellSimd {
  // A matrix b[k][n] is packed once; element (p, j) is at b[p * row + j * column]. Then c[rows][n] = or += a[rows][k]
  // b.
  void (*pack_panels)(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* panels);
  void (*panel_product)(const float* a, int64_t a_row, int64_t rows, const float* panels, int64_t k, int64_t n,
                        float* c, int64_t c_row, bool add);

  // Functions of the cells, and steps of one sample of `u` units; see recurrent.inl.
  void (*cell_values)(CellFunction function, const float* x, float* y, int64_t n);
  void (*cell_slopes)(CellFunction function, const float* y, float* d, int64_t n);
  void (*lstm_cell)(CellFunction f, CellFunction recurrent_f, float* gates, const float* c_before, float* c, float* h,
                    int64_t u);
  void (*lstm_cell_grad)(CellFunction f, CellFunction recurrent_f, const float* gates, const float* c_before,
                         const float* c, const float* dh, float* dc, float* d, float* scratch, int64_t u);
  void (*gru_cell)(CellFunction f, float* gates, const float* inner, const float* h_before, float* h, int64_t u);
  void (*gru_cell_grad)(CellFunction f, CellFunction recurrent_f, const float* gates, const float* inner,
                        const float* h_before, float* dh, float* d, int64_t u);
};

// The table of the instruction set of simd().
const CellSimd& cell_simd();

namespace baseline {
extern const CellSimd kCellSimd;
}
namespace avx2 {
extern const CellSimd kCellSimd;
}
namespace avx512 {
extern const CellSimd kCellSimd;
}

}  // namespace plimsoll::engine::cpu
