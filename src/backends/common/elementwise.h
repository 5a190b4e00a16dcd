// What backends that fuse element-wise ops must agree on: which ops end in sums, and which see a tensor as rows of
// channels.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace plimsoll::engine {

// Sums over the rows, one per channel.
inline bool is_channel_sum(std::string_view op) {
  return op == "reduce_to" || op == "batch_norm_grad_stats" || op == "batch_norm_stats";
}

// Whether it reads or makes channel vectors, so that its tensors are rows of channels.
inline bool uses_channels(std::string_view op) {
  return is_channel_sum(op) || op == "bias_add" || op.starts_with("batch_norm_");
}

// Whether summing x to y leaves one sum per channel: the form of reduce_to that fuses.
inline bool reduces_to_channels(const Shape& x, const Shape& y) {
  return x.rank() > 0 && y.rank() > 0 && y.back() == x.back() && y.elements() == y.back();
}

}  // namespace plimsoll::engine
