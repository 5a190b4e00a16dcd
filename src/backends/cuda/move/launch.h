// Launches that move elements. Nothing but the output is written, and all of it is.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/kernel_limits.h"

namespace plimsoll::engine::cuda {

// Strips of bytes from one place to another: strip i of `count` begins at from + i * from_pitch.
struct StripCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t count = 0, bytes = 0;  // of a strip
  int64_t from_pitch = 0, to_pitch = 0;
};
inline constexpr int kCopiesAtOnce = 8;
void launch_copies(const StripCopy* copies, int count, cudaStream_t stream);
void launch_copy(const void* from, void* to, int64_t bytes, cudaStream_t stream);

// `pattern` is one element of `element_bytes` (1, 2, 4 or 8), repeated.
void launch_fill(void* to, uint64_t pattern, int element_bytes, int64_t elements, cudaStream_t stream);

// y[i] = x[i * strides]: axes of y from the outermost, strides of x in elements, 0 where x is repeated.
struct BroadcastShape {
  static constexpr int kAxes = 8;
  int axes = 0;
  int64_t sizes[kAxes] = {}, strides[kAxes] = {};
};
void launch_broadcast(const BroadcastShape& shape, int element_bytes, const void* x, void* y, cudaStream_t stream);

// y[n, h, w, :] = x[n, h - top, w - left, :], zero outside of x. Negative top and left crop.
struct ImageShift {
  int64_t n = 0;
  int h = 0, w = 0;    // of x
  int oh = 0, ow = 0;  // of y
  int top = 0, left = 0;
  int64_t pixel_bytes = 0;
};
void launch_shift(const ImageShift& g, const void* x, void* y, cudaStream_t stream);

struct Upsampling {
  int64_t n = 0;
  int h = 0, w = 0, c = 0;  // the small image
  int fh = 0, fw = 0;
  bool bilinear = false;
};
void launch_upsample(const Upsampling& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_upsample_grad(const Upsampling& g, Element element, const void* dy, void* dx, cudaStream_t stream);

// to[columns][rows] = from[rows][columns]; elements of 2 or 4 bytes. Up to kMovesAtOnce matrices are one kernel.
struct Transposition {
  const void* from = nullptr;
  void* to = nullptr;
  int rows = 0, columns = 0;
};
void launch_transpositions(const Transposition* moves, int count, int element_bytes, cudaStream_t stream);

// The numbers of every dtype, in the order of DType.
enum class Number : uint8_t { kF32, kF64, kF16, kBF16, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };
void launch_cast(Number from, Number to, int64_t elements, const void* x, void* y, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
