// Sizes and strides of attention, shared by offer and binder.
#pragma once

#include <algorithm>
#include <cstddef>

#include "backends/cuda/kernels.h"
#include "ops/attention.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kFlashKernel = "flash";  // our own kernel; never stores a T x T matrix
inline constexpr int64_t kWidestHead = 256;           // limit of our own kernels: a warp keeps a row in registers

// Elements between neighbours. The D elements of a head are contiguous.
struct HeadStrides {
  int64_t sample, position, head;
};

// A mask of which an element above 0 lets a position be seen. `input` is its place among the node's inputs, -1: none.
struct AttentionMask {
  int input = -1;
  DType dtype = DType::kFloat32;
};

struct Attention {
  AttentionForm form;  // queries [N,Tq,H,D], keys [N,Tk,G,D], values [N,Tk,G,V]
  float scale;
  bool matrix;  // whether the card has tensor cores that our kernels use
  DType dtype;
  HeadStrides q, k, v;  // and their gradients
  HeadStrides y;        // and dy
  AttentionMask q_mask, k_mask, m_mask;

  Attention(const Card& card, const NodeView& node);

  bool packed() const { return form.parts == 3; }
  bool masked() const { return !form.masks.empty(); }
  // Whether our own kernels run on tensor cores.
  bool in_tiles() const { return matrix && is_half(dtype) && form.d % 8 == 0 && form.dv % 8 == 0 && widest() <= 128; }
  // Whether a query may see no position.
  bool may_see_none() const { return masked() || form.window > 0; }
  int64_t rows() const { return form.n * form.h * form.tq; }
  int64_t widest() const { return std::max(form.d, form.dv); }
  // Slice i of a packed tensor.
  void* part(void* first, int64_t i) const { return static_cast<std::byte*>(first) + i * form.part() * size_of(dtype); }
  // Scratch of our own kernels for the gradient: a sum per query, and whether it sees any position.
  Bytes own_scratch() const { return rows() * 4 * (may_see_none() ? 2 : 1); }
};

}  // namespace plimsoll::engine::cuda
