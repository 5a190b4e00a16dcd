// What all our kernels of attention share: sizes, strides and masks, as the device sees them.
#pragma once

#include "backends/cuda/attention/launch.h"
#include "backends/cuda/common/element.h"
#include "backends/cuda/common/numbers.cuh"

namespace plimsoll::engine::cuda {

// A mask of any floating type.
struct DeviceMask {
  const void* first;
  Element element;

  __device__ bool lets(int64_t i) const {
    if (first == nullptr) return true;
    if (element == Element::kF32) return static_cast<const float*>(first)[i] > 0;
    if (element == Element::kF16) return to_float(static_cast<const __half*>(first)[i]) > 0;
    return to_float(static_cast<const __nv_bfloat16*>(first)[i]) > 0;
  }
};

struct AttentionSizes {
  int tq, tk, h, g, d, dv;
  bool causal;
  int window;  // 0: none
  float scale;
  HeadStrides q, k, v, y;
  DeviceMask q_mask, k_mask, m_mask;
  int mask_n, mask_h;  // the first two sizes of m_mask

  __device__ bool masked() const {
    return q_mask.first != nullptr || k_mask.first != nullptr || m_mask.first != nullptr;
  }
  __device__ bool visible(int sample, int head, int query, int key) const {
    if (causal && key > query) return false;
    if (window > 0 && abs(query - key) >= window) return false;
    if (!q_mask.lets(static_cast<int64_t>(sample) * tq + query)) return false;
    if (!k_mask.lets(static_cast<int64_t>(sample) * tk + key)) return false;
    if (m_mask.first == nullptr) return true;
    const int64_t matrix = static_cast<int64_t>(mask_n > 1 ? sample : 0) * mask_h + (mask_h > 1 ? head : 0);
    return m_mask.lets((matrix * tq + query) * tk + key);
  }
  // The keys that queries [first, last] may see, apart from masks.
  __device__ int first_key(int first) const { return window > 0 ? max(0, first - window + 1) : 0; }
  __device__ int end_key(int last) const {
    const int end = causal ? min(tk, last + 1) : tk;
    return window > 0 ? min(end, last + window) : end;
  }
};
AttentionSizes sizes_of(const Attention& a, const MaskAddresses& masks);

__device__ inline int64_t base_of(const HeadStrides& strides, int sample, int head) {
  return sample * strides.sample + head * strides.head;
}

// With tensor cores (tiles.cu), if Attention::in_tiles().
void tiles_forward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const void* q, const void* k,
                   const void* v, void* y, float* stats);
// Needs row_sums and blind of `g`.
void tiles_backward(cudaStream_t stream, const Attention& a, const MaskAddresses& masks, const FlashGradients& g);

}  // namespace plimsoll::engine::cuda
