// Sizes and strides of attention, shared by offer and binder.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kFlashKernel = "flash";  // our own kernel; never stores a T x T matrix
inline constexpr int64_t kWidestHead = 256;           // limit of our own kernels: a warp keeps a row in registers

// Elements between neighbours. The D elements of a head are contiguous.
struct HeadStrides {
  int64_t sample, position, head;
};

struct Attention {
  int64_t n, t, h, d;
  bool packed;  // q, k and v are slices of one [N,T,3,H,D]
  bool causal;
  float scale;
  DType dtype;
  HeadStrides in;   // q, k, v and their gradients
  HeadStrides out;  // y and dy

  explicit Attention(const NodeView& node);

  int64_t rows() const { return n * h * t; }
  // Slice i of a packed tensor.
  void* part(void* first, int64_t i) const { return static_cast<std::byte*>(first) + i * h * d * size_of(dtype); }
};

// The strides of a [N,T,H,D] tensor that is one slice of [N,T,parts,H,D]; `parts` is 1 for a separate tensor.
HeadStrides head_strides(int64_t t, int64_t h, int64_t d, int64_t parts);

}  // namespace plimsoll::engine::cuda
