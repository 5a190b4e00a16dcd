// Launches that move elements. All of the output is written, and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/kernel_limits.h"

namespace plimsoll::engine::cuda {

// Copies strips of bytes: strip i of `count` begins at from + i * from_pitch.
struct StripCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t count = 0, bytes = 0;  // bytes: per strip
  int64_t from_pitch = 0, to_pitch = 0;
};
inline constexpr int kCopiesAtOnce = 8;
void launch_copies(const StripCopy* copies, int count, cudaStream_t stream);
void launch_copy(const void* from, void* to, int64_t bytes, cudaStream_t stream);

// `pattern` is one element of `element_bytes` (1, 2, 4 or 8), which is repeated.
void launch_fill(void* to, uint64_t pattern, int element_bytes, int64_t elements, cudaStream_t stream);

// Writes `bytes` bytes from host memory, which the launch copies: several launches if they are many.
void launch_constant(void* to, const void* from, int64_t bytes, cudaStream_t stream);

// y[i] = x[i * strides]. Axes of y from the outermost; strides of x in elements, 0 where x is repeated.
struct BroadcastShape {
  static constexpr int kAxes = 8;
  int axes = 0;
  int64_t sizes[kAxes] = {}, strides[kAxes] = {};
};
void launch_broadcast(const BroadcastShape& shape, int element_bytes, const void* x, void* y, cudaStream_t stream);

// y[n, h, w, :] = x[n, h - top, w - left, :], zero outside x. Negative top and left crop.
struct ImageShift {
  int64_t n = 0;
  int h = 0, w = 0;    // size of x
  int oh = 0, ow = 0;  // size of y
  int top = 0, left = 0;
  int64_t pixel_bytes = 0;
};
void launch_shift(const ImageShift& g, const void* x, void* y, cudaStream_t stream);

struct Upsampling {
  int64_t n = 0;
  int h = 0, w = 0, c = 0;  // size of the small image
  int fh = 0, fw = 0;
  bool bilinear = false;
};
void launch_upsample(const Upsampling& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_upsample_grad(const Upsampling& g, Element element, const void* dy, void* dx, cudaStream_t stream);

// to[columns][rows] = from[rows][columns], elements of 2 or 4 bytes. Up to kMovesAtOnce matrices per launch.
struct Transposition {
  const void* from = nullptr;
  void* to = nullptr;
  int rows = 0, columns = 0;
};
void launch_transpositions(const Transposition* moves, int count, int element_bytes, cudaStream_t stream);

// The element types of all dtypes, in the order of DType.
enum class Number : uint8_t { kF32, kF64, kF16, kBF16, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };
void launch_cast(Number from, Number to, int64_t elements, const void* x, void* y, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
