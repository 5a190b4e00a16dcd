// Our own CPU kernels, compiled once per instruction set; the set is chosen when the program starts.
//
// Every function processes a range given by the caller, on one thread, and allocates nothing. Each instruction set has
// one .cpp file that includes the sources (*.inl). The sources contain only plain loops: if an inline function of a
// library were compiled there, the linker might keep its AVX-512 version for the whole program. Floating-point
// contraction is off and each element is computed by the same expression in the vector loop and in its remainder, so an
// element-wise function gives the same bits wherever it runs.
#pragma once

#include <cstdint>

namespace plimsoll::engine::cpu {

// One element-wise instruction over `n` consecutive elements. Channel vectors are expanded to the tile's length;
// scalars are a pointer to one element. An output may have the same address as an input, but must not overlap it
// partially.
// How a smaller tensor is repeated to the shape of a program: for each dimension of that shape its extent, and the
// stride of the smaller tensor (0 where it is repeated). The innermost stride is 0 or 1.
struct TileView {
  static constexpr int kMostDims = 8;
  int rank = 0;
  int64_t extent[kMostDims] = {}, stride[kMostDims] = {};
};

struct TileCall {
  const void* in[8];
  void* out[3];
  int64_t n;
  int64_t first;   // index of the tile's first element in the whole tensor, for dropout
  const float* f;  // constants of the instruction
  const int64_t* i;
};
using TileFunction = void (*)(const TileCall&);

enum class TileOp : uint8_t {
#define UNARY(name, ...) k_##name,
#define BINARY(name, ...) k_##name,
#define TERNARY(name, ...) k_##name,
#define INSTRUCTION(name) k_##name,
#include "backends/cpu/fused/ops.inl"
  kCount
};

// A pooling window over NDHWC images; images without depth have depth 1.
struct Window {
  int64_t n, d, h, w, c;  // the input
  int64_t od, oh, ow;     // the output
  int64_t kd, kh, kw, sd, sh, sw, front, top, left;
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
  const float* bias;  // bias of these n columns, or null; added with the last part of k
  bool relu;
  bool pack_a;
  float* a_panels;  // scratch: k times m rounded up to a multiple of gemm_mr
  float* b_panels;  // scratch: k times n rounded up to a multiple of gemm_nr
};

constexpr int64_t kWinogradRows = 2, kWinogradColumns = 4;  // results per tile
constexpr int64_t kWinogradPositions = (kWinogradRows + 2) * (kWinogradColumns + 2);

// The tiles of a 3x3 convolution's result and the image they are computed from; see winograd.inl. Channel counts are
// multiples of 16. In an image with depth, a tile lies in one plane of the result and is computed from kd planes, whose
// channels count as kd * c channels of one image.
struct WinogradTiles {
  int64_t h, w, c;    // the image
  int64_t oh, ow, o;  // the result
  int64_t top, left;  // zero padding around the image
  int64_t d, od, kd, front;
  int64_t capacity;  // number of tiles a buffer of transformed tiles can hold; a multiple of gemm_mr

  int64_t k() const { return kd * c; }
};

// Weights [kd][3][3][c][n]. If `turned`, for the input gradient, weights [kd][3][3][n][c] rotated by 180 degrees (read
// from the last tap to the first).
struct WinogradWeights {
  const float* w;
  int64_t kd, c, n;
  bool turned;
};

struct WinogradResult {
  float* y;
  const float* bias;  // or null
  bool relu;
  bool stream;  // write y with non-temporal stores: it is aligned and larger than the caches
};

constexpr int64_t kMaxFewChannelRows = 16;

// The image rows that contribute to one row of a convolution's result; see few_channels.inl.
struct FewChannelRows {
  const float* rows[kMaxFewChannelRows];  // kh rows including their padding; null outside the image
  int64_t kh, run;                        // run: values covered by one row of taps, kw * c
  int64_t step;                           // elements from one output pixel's first value to the next pixel's
  int64_t pixels, o;                      // pixels and channels of the result row; o is a multiple of 16
};

// Pixels of a one-dimensional convolution's result, and the values of x that contribute to them.
struct SequencePixels {
  int64_t count;     // pixels
  int64_t run;       // values of x under one pixel: consecutive, so taps without dilation are one run
  int64_t step;      // elements of x from one pixel's first value to the next pixel's
  int64_t width, o;  // columns of dy to multiply, of o
};
constexpr int64_t kWidestVector = 16;  // floats

// A 1x1 convolution with k input and n output channels, both multiples of 16.
struct PointwiseProduct {
  int64_t k, n;
  const float* panels;  // the weights in the layout written by pointwise_panels(): k * n elements
  const float* bias;    // or null
  bool relu;
  bool stream;  // as in WinogradResult
};

enum class ReduceKind : uint8_t { kSum, kMax, kMin, kProd };  // a NaN among the elements gives a NaN

struct Simd {
  const char* name;
  TileFunction tile[static_cast<int>(TileOp::kCount)];

  // Conversions of n numbers between float and half precision.
  void (*widen_bf16)(const uint16_t* from, float* to, int64_t n);
  void (*widen_f16)(const uint16_t* from, float* to, int64_t n);
  void (*narrow_bf16)(const float* from, uint16_t* to, int64_t n);
  void (*narrow_f16)(const float* from, uint16_t* to, int64_t n);

  // Runs `rounds` times as many multiply-adds as keep the units busy, on registers, and returns their number of
  // floating-point operations. `result` receives their sum.
  double (*multiply_adds)(int64_t rounds, float* result);

  int64_t gemm_mr, gemm_nr;
  void (*gemm_block)(const GemmBlock&);

  // Each call processes `count` tiles starting at tile `first`, and `width` channels of the result: gemm_nr, or the
  // remainder.
  void (*winograd_image)(const WinogradTiles&, const float* x, int64_t first, int64_t count, float* v);
  void (*winograd_weights)(const WinogradWeights&, int64_t column, int64_t width, float* u);
  void (*winograd_multiply)(const WinogradTiles&, const float* v, const float* u, int64_t width, int64_t count,
                            float* m);
  void (*winograd_result)(const WinogradTiles&, const float* m, int64_t channel, int64_t width, int64_t first,
                          int64_t count, const WinogradResult& result);
  void (*winograd_result_grad)(const WinogradTiles&, const float* dy, int64_t channel, int64_t width, int64_t first,
                               int64_t count, float* z, float* sums);
  void (*winograd_accumulate)(const WinogradTiles&, const float* v, const float* z, int64_t width, int64_t count,
                              float* sums);
  void (*winograd_weight_grad)(const WinogradTiles&, const float* sums, int64_t channel, int64_t width, float* dw);

  void (*few_channel_weight_grad)(const FewChannelRows&, const float* dy, float* sums, float* bias_sums);
  void (*pointwise_panels)(const float* w, int64_t k, int64_t n, bool turned, float* panels);
  void (*pointwise_forward)(const PointwiseProduct&, const float* x, int64_t pixels, float* y);
  // x[pixels][c], dy[pixels][o]; c and o are multiples of 16.
  void (*pointwise_weight_grad)(const float* x, int64_t c, const float* dy, int64_t o, int64_t pixels, float* sums,
                                float* bias_sums);

  // sums[run][o] += x^T dy; sums[width] += dy. Scratch has (count + run) * kWidestVector elements.
  void (*sequence_weight_grad)(const SequencePixels&, const float* x, const float* dy, float* sums, float* scratch);
  void (*sequence_bias_grad)(const SequencePixels&, const float* dy, float* sums);

  // Output rows [begin, end) of n * od * oh. The _wide functions have an index of four bytes per element.
  void (*max_pool)(const Window&, const float* x, float* y, uint8_t* index, int64_t begin, int64_t end);
  void (*max_pool_wide)(const Window&, const float* x, float* y, int32_t* index, int64_t begin, int64_t end);
  void (*avg_pool)(const Window&, const float* x, float* y, int64_t begin, int64_t end);
  // Input rows [begin, end) of n * d * h. Every element of dx is written exactly once.
  void (*max_pool_grad)(const Window&, const float* dy, const uint8_t* index, float* dx, int64_t begin, int64_t end);
  void (*max_pool_grad_wide)(const Window&, const float* dy, const int32_t* index, float* dx, int64_t begin,
                             int64_t end);
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
  double (*reduce_run)(ReduceKind kind, const float* x, int64_t n);
  // Combines `rows` rows of `width` columns, `stride` elements apart, into one result per column.
  void (*reduce_rows)(ReduceKind kind, const float* x, int64_t stride, int64_t rows, int64_t width, double* results);
  // For each of `width` columns, the first row with the largest sign * x. Columns are at most 256.
  void (*arg_extreme)(float sign, const float* x, int64_t stride, int64_t rows, int64_t width, int32_t* index);
  // to[r * to_stride + c] = from[c * from_stride + r]
  void (*transpose)(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                    int64_t columns);

  // Rows of attention scores (attention.inl). The first returns the largest score, the second the sum of weights.
  float (*scaled_scores)(float* x, float scale, int64_t n);
  double (*score_weights)(float* x, float top, int64_t n);
  void (*score_gradients)(const float* weights, float* products, float own, float scale, int64_t n);
  void (*scaled_row)(float* x, float factor, int64_t n);

  // Rows of k elements.
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t k);
  void (*softmax_grad)(const float* dy, const float* y, float* dx, int64_t rows, int64_t k);
  void (*layer_norm)(const float* x, const float* gamma, const float* beta, float* y, float* mean, float* rstd,
                     int64_t rows, int64_t k, double epsilon, bool rms);
  void (*layer_norm_input_grad)(const float* dy, const float* x, const float* mean, const float* rstd,
                                const float* gamma, float* dx, int64_t rows, int64_t k, bool rms);
  // Adds dy * xhat and dy, summed over `rows` rows that are `stride` elements apart, to the doubles. Covers columns [0,
  // c).
  void (*layer_norm_param_grad)(const float* dy, const float* x, const float* mean, const float* rstd, int64_t rows,
                                int64_t c, int64_t stride, double* dgamma, double* dbeta);
  // The target is either labels (i32, one per row) or distributions (float, k per row); the other pointer is null.
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

// The best instruction set of this processor, limited to the one oneDNN may use (ONEDNN_MAX_CPU_ISA), so that one
// setting controls both.
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

}  // namespace plimsoll::engine::cpu
