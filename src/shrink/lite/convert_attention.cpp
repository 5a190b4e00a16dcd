// Attention becomes its products, a softmax, and constants for what a position may not see.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "ops/attention.h"
#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

// Far below every score, and still a number that softmax turns into 0.
constexpr float kHidden = -1e9F;

// [1,T,H,D] -> [H,T,D]
int32_t heads_first(Converter& c, int32_t x) {
  const auto s = c.shape_of(x);
  const int32_t moved = c.add(Op::kTranspose, {x, c.add_integers({0, 2, 1, 3}, "perm")}, {s[0], s[2], s[1], s[3]});
  return c.reshape(moved, {s[0] * s[2], s[1], s[3]});
}

void attention(Converter& c, const Node& node) {
  const AttentionForm f =
      attention_form("attention", node.inputs.size(), node.attrs, [&](size_t i) { return c.shape(node.inputs[i]); });
  if (f.parts != 1 || f.h != f.g) return c.refuse("attention whose heads share keys");
  std::vector<float> seen(static_cast<size_t>(f.h * f.tq * f.tk), 0.0F);
  bool any = f.causal || f.window > 0;
  for (size_t m = 0; m < f.masks.size(); ++m)
    if (f.masks[m] != 'm' || !c.is_constant(node.inputs[3 + m]))
      return c.refuse("attention with a mask that is computed");
  AttentionMasks<float> masks;
  std::vector<float> own;
  if (!f.masks.empty()) {
    own = c.floats(node.inputs[3]);
    masks.m = own.data();
    any = true;
  }
  if (f.masks.size() > 1) return c.refuse("attention with several masks");
  size_t next = 0;
  for (int64_t head = 0; head < f.h; ++head)
    for (int64_t i = 0; i < f.tq; ++i)
      for (int64_t j = 0; j < f.tk; ++j, ++next)
        if (!masks.visible(f, 0, head, i, j)) seen[next] = kHidden;
  const auto h = static_cast<int32_t>(f.h), tq = static_cast<int32_t>(f.tq), tk = static_cast<int32_t>(f.tk),
             dv = static_cast<int32_t>(f.dv);
  const int32_t q = heads_first(c, c.tensor(node.inputs[0])), k = heads_first(c, c.tensor(node.inputs[1])),
                v = heads_first(c, c.tensor(node.inputs[2]));
  Options transposed;
  transposed.adjoint_y = true;
  int32_t scores = c.add(Op::kBatchMatmul, {q, k}, {h, tq, tk}, transposed);
  scores = c.add(Op::kMul, {scores, c.number(static_cast<float>(f.scale))}, {h, tq, tk});
  if (any) scores = c.add(Op::kAdd, {scores, c.add_constant({h, tq, tk}, std::move(seen), "hidden")}, {h, tq, tk});
  const int32_t weights = c.add(Op::kSoftmax, {scores}, {h, tq, tk});
  const int32_t mixed = c.reshape(c.add(Op::kBatchMatmul, {weights, v}, {h, tq, dv}), {1, h, tq, dv});
  c.set(node.outputs[0], c.add(Op::kTranspose, {mixed, c.add_integers({0, 2, 1, 3}, "perm")}, {1, tq, h, dv}));
}

constexpr std::array kConversions = {NodeConversion{"attention", attention}};

}  // namespace

std::span<const NodeConversion> attention_conversions() {
  return kConversions;
}

}  // namespace plimsoll::engine::lite
