// Properties of element-wise ops on which all fusing backends must agree: which ops end in a sum, and which ops treat a
// tensor as rows of channels.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace plimsoll::engine {

// Whether the op sums over the rows and returns one value per channel.
inline bool is_channel_sum(std::string_view op) {
  return op == "reduce_to" || op == "batch_norm_grad_stats" || op == "batch_norm_stats";
}

// Whether the op reads or writes per-channel vectors, so that its tensors are seen as rows of channels.
inline bool uses_channels(std::string_view op) {
  return is_channel_sum(op) || op == "bias_add" || op.starts_with("batch_norm_");
}

// Whether reducing x to y leaves one sum per channel. Only this form of reduce_to can be fused.
inline bool reduces_to_channels(const Shape& x, const Shape& y) {
  return x.rank() > 0 && y.rank() > 0 && y.back() == x.back() && y.elements() == y.back();
}

}  // namespace plimsoll::engine
