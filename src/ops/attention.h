// The sizes and the visible positions of an attention node, for its reference and for kernels.
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace plimsoll::engine {

// Queries are [N,Tq,H,D], keys [N,Tk,G,D] and values [N,Tk,G,V]: H / G query heads share the keys and values of a head.
// If `parts` is 3, all three are in one tensor [N,T,3,H,D].
struct AttentionForm {
  int64_t n = 0, tq = 0, tk = 0, h = 0, g = 0, d = 0, dv = 0, parts = 1;
  bool causal = false;  // position i sees positions 0 to i
  int64_t window = 0;   // above 0: position i sees positions j with |i - j| < window
  double scale = 1;
  // A letter per mask, in the order of the inputs: "q" [N,Tq], "k" [N,Tk], "m" [1 or N, 1 or H, Tq, Tk].
  std::string masks;
  int64_t mask_n = 1, mask_h = 1;  // the first two sizes of "m"

  int64_t q_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * tq + position) * parts * h + head) * d;
  }
  int64_t y_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * tq + position) * h + head) * dv;
  }
  int64_t k_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * tk + position) * parts * g + head) * d;
  }
  int64_t v_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * tk + position) * parts * g + head) * dv;
  }
  int64_t part() const { return h * d; }                         // elements between q, k and v of one position
  int64_t shared(int64_t head) const { return head / (h / g); }  // the head of the keys that a query head reads
};

AttentionForm attention_form(const Shape& q, const Shape& k, const Shape& v, const Attrs& attrs);
// Of an attention or attention_grad node. `shape(i)` is the shape of its input i.
template <typename ShapeOf>
AttentionForm attention_form(const std::string& op, size_t inputs, const Attrs& attrs, ShapeOf shape) {
  const size_t q = op == "attention" ? 0 : 1;
  const bool packed = shape(q).rank() == 5;
  AttentionForm form = attention_form(shape(q), shape(packed ? q : q + 1), shape(packed ? q : q + 2), attrs);
  for (size_t i = 0; i < form.masks.size() && q + 3 + i < inputs; ++i)
    if (form.masks[i] == 'm') form.mask_n = shape(q + 3 + i)[0], form.mask_h = shape(q + 3 + i)[1];
  return form;
}

// The masks of a node, of which an element above 0 lets a position be seen; null if there is none.
template <typename T>
struct AttentionMasks {
  const T *q = nullptr, *k = nullptr, *m = nullptr;

  bool visible(const AttentionForm& f, int64_t sample, int64_t head, int64_t i, int64_t j) const {
    if (f.causal && j > i) return false;
    if (f.window > 0 && (j > i ? j - i : i - j) >= f.window) return false;
    if (q != nullptr && !(q[sample * f.tq + i] > 0)) return false;
    if (k != nullptr && !(k[sample * f.tk + j] > 0)) return false;
    return m == nullptr || row(f, sample, head, i)[j] > 0;
  }
  // The row of "m" for a query.
  const T* row(const AttentionForm& f, int64_t sample, int64_t head, int64_t i) const {
    return m + (((f.mask_n > 1 ? sample : 0) * f.mask_h + (f.mask_h > 1 ? head : 0)) * f.tq + i) * f.tk;
  }
  // Whether a query sees any position. If it sees none, all positions have the same weight, as in Keras.
  bool sees_any(const AttentionForm& f, int64_t sample, int64_t head, int64_t i) const {
    for (int64_t j = 0; j < f.tk; ++j)
      if (visible(f, sample, head, i, j)) return true;
    return false;
  }
};

// `pointer(i)` is the address of input i. `first`: the first mask's input.
template <typename T, typename Pointer>
AttentionMasks<T> attention_masks(const AttentionForm& form, size_t first, Pointer pointer) {
  AttentionMasks<T> masks;
  for (size_t i = 0; i < form.masks.size(); ++i) {
    const T* mask = pointer(first + i);
    (form.masks[i] == 'q' ? masks.q : form.masks[i] == 'k' ? masks.k : masks.m) = mask;
  }
  return masks;
}

}  // namespace plimsoll::engine
