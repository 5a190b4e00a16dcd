// The own kernels of the CPU backend, compiled once per instruction set and chosen when the program starts.
//
// Every function works on a range somebody else cut, on one thread, and allocates nothing. The sources (*.inl) are
// included by one .cpp an instruction set, with nothing in them but plain loops: no inline function of a library may be
// compiled there, or the linker could keep its AVX-512 version for everybody. Floating-point contraction is off and
// each element is computed by the same expression in the vector loop and in its remainder, so one element-wise function
// gives the same bits wherever it runs.
#pragma once

#include <cstdint>

namespace plimsoll::cpu {

// One element-wise instruction over `n` consecutive elements. Channel vectors come expanded to the tile's length,
// scalars as a pointer to one element. An output may be the same address as an input, never a shifted one.
struct TileCall {
  const void* in[8];
  void* out[3];
  int64_t n;
  int64_t first;   // index of the tile's first element in the whole tensor (dropout)
  const float* f;  // constants
  const int64_t* i;
};
using TileFunction = void (*)(const TileCall&);

// X(name): what it computes, inputs in order, is at its definition in elementwise.inl.
#define PLIMSOLL_TILE_OPS(X)                                                                                          \
  X(copy)                                                                                                             \
  X(add)                                                                                                              \
  X(multiply) X(scale) X(affine) X(relu) X(relu_any) X(relu_grad) X(relu_grad_any) X(sigmoid) X(sigmoid_grad) X(tanh) \
      X(tanh_grad) X(elu) X(elu_grad) X(gelu) X(gelu_tanh) X(gelu_grad) X(gelu_tanh_grad) X(silu) X(silu_grad)        \
          X(dropout) X(normalize) X(normalize_shift) X(norm_input_grad) X(accumulate) X(accumulate_centered)          \
              X(accumulate_moments) X(from_u8) X(from_i8) X(from_u16) X(from_i16) X(from_i32) X(from_u32) X(from_i64) \
                  X(from_u64) X(from_f64) X(moving_average) X(clip) X(l1_l2_grad) X(sgd) X(sgd_momentum)              \
                      X(sgd_nesterov) X(adam)

enum class TileOp : uint8_t {
#define X(name) k_##name,
  PLIMSOLL_TILE_OPS(X)
#undef X
      kCount
};

// A 2-D window over NHWC images: pooling.
struct Window {
  int64_t n, h, w, c;  // the input
  int64_t oh, ow;      // the output
  int64_t kh, kw, sh, sw, top, left;
};

// c[m x n] (+)= a[m x k] * b[k x n] for one block, from packed panels; see gemm.inl.
struct GemmBlock {
  const float* a;  // element (i, k) at a[i * a_row + k * a_column] when not packed
  int64_t a_row, a_column;
  const float* b;  // element (k, j) at b[k * b_row + j * b_column]
  int64_t b_row, b_column;
  float* c;
  int64_t c_row;
  int64_t m, n, k;
  bool accumulate;    // add to c instead of writing it
  const float* bias;  // of these n columns, or null; added with the last part of k
  bool relu;
  bool pack_a;
  bool ones_below;  // the last row of a is not stored but all ones; needs pack_a
  float* a_panels;  // scratch: gemm_a_panel_elements(m, k)
  float* b_panels;  // scratch: gemm_b_panel_elements(n, k)
};

struct Simd {
  const char* name;
  TileFunction tile[static_cast<int>(TileOp::kCount)];

  int64_t gemm_mr, gemm_nr;
  void (*gemm_block)(const GemmBlock&);

  // Output rows [begin, end) of n * oh.
  void (*max_pool)(const Window&, const float* x, float* y, uint8_t* index, int64_t begin, int64_t end);
  void (*avg_pool)(const Window&, const float* x, float* y, int64_t begin, int64_t end);
  // Input rows [begin, end) of n * h: every element of dx is written once.
  void (*max_pool_grad)(const Window&, const float* dy, const uint8_t* index, float* dx, int64_t begin, int64_t end);
  void (*avg_pool_grad)(const Window&, const float* dy, float* dx, int64_t begin, int64_t end);
  // Images [begin, end) of n, `positions` pixels each.
  void (*global_avg_pool)(const float* x, float* y, int64_t positions, int64_t c, int64_t begin, int64_t end);
  void (*global_max_pool)(const float* x, float* y, int32_t* index, int64_t positions, int64_t c, int64_t begin,
                          int64_t end);
  void (*global_avg_pool_grad)(const float* dy, float* dx, int64_t positions, int64_t c, int64_t begin, int64_t end);
  void (*global_max_pool_grad)(const float* dy, const int32_t* index, float* dx, int64_t positions, int64_t c,
                               int64_t begin, int64_t end);

  double (*sum)(const float* x, int64_t n);
  double (*sum_of_squares)(const float* x, int64_t n);
  double (*sum_of_magnitudes)(const float* x, int64_t n);
  double (*dot)(const float* x, const float* y, int64_t n);

  // Rows of k elements.
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t k);
  void (*softmax_grad)(const float* dy, const float* y, float* dx, int64_t rows, int64_t k);
  void (*layer_norm)(const float* x, const float* gamma, const float* beta, float* y, float* mean, float* rstd,
                     int64_t rows, int64_t k, double epsilon);
  void (*layer_norm_input_grad)(const float* dy, const float* x, const float* mean, const float* rstd,
                                const float* gamma, float* dx, int64_t rows, int64_t k);
  // dy * xhat and dy of `rows` rows, columns [0, c) of rows `stride` apart, added to the doubles.
  void (*layer_norm_param_grad)(const float* dy, const float* x, const float* mean, const float* rstd, int64_t rows,
                                int64_t c, int64_t stride, double* dgamma, double* dbeta);
  // A target is i32 (one a row) or float (k a row); the other pointer is null.
  void (*softmax_cross_entropy)(const float* x, const int32_t* label, const float* target, float smoothing, float* loss,
                                int64_t rows, int64_t k);
  void (*softmax_cross_entropy_grad)(const float* dloss, const float* x, const int32_t* label, const float* target,
                                     float smoothing, float* dx, int64_t rows, int64_t k);
  void (*cross_entropy)(const float* p, const int32_t* label, const float* target, float smoothing, float* loss,
                        int64_t rows, int64_t k);
  void (*cross_entropy_grad)(const float* dloss, const float* p, const int32_t* label, const float* target,
                             float smoothing, float* dp, int64_t rows, int64_t k);
  void (*binary_cross_entropy)(const float* x, const float* target, bool from_logits, float smoothing, float* loss,
                               int64_t rows, int64_t k);
  void (*binary_cross_entropy_grad)(const float* dloss, const float* x, const float* target, bool from_logits,
                                    float smoothing, float* dx, int64_t rows, int64_t k);
  void (*squared_error)(const float* x, const float* target, float* loss, int64_t rows, int64_t k);
  void (*squared_error_grad)(const float* dloss, const float* x, const float* target, float* dx, int64_t rows,
                             int64_t k);
  void (*absolute_error)(const float* x, const float* target, float* loss, int64_t rows, int64_t k);
  void (*absolute_error_grad)(const float* dloss, const float* x, const float* target, float* dx, int64_t rows,
                              int64_t k);
};

// The best this processor has, within what oneDNN was told to use (ONEDNN_MAX_CPU_ISA), so that one switch rules both.
const Simd& simd();

namespace baseline {
extern const Simd kSimd;
}
namespace avx2 {
extern const Simd kSimd;
}
namespace avx512 {
extern const Simd kSimd;
}

}  // namespace plimsoll::cpu
