// Attention's sizes and where its tensors lie. Shared by the rule and the runtime.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kFlashKernel = "flash";  // own; never stores T x T
inline constexpr int64_t kWidestHead = 256;           // of the own kernels: a row in the registers of a warp

// Elements between neighbours. A head's row of D numbers is contiguous.
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

// Of a [N,T,H,D] tensor that is every `parts`-th slice of [N,T,parts,H,D]: 1 for a tensor of its own.
HeadStrides head_strides(int64_t t, int64_t h, int64_t d, int64_t parts);

}  // namespace plimsoll::engine::cuda
