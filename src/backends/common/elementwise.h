// Properties of element-wise ops on which all fusing backends must agree: which ops end in a sum, and which ops treat a
// tensor as rows of channels.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "ops/strided.h"

namespace plimsoll::engine {

// Whether the op sums over the rows and returns one value per channel.
inline bool is_channel_sum(std::string_view op) {
  return op == "reduce_to" || op == "batch_norm_grad_stats" || op == "batch_norm_stats";
}

// Whether the op reads or writes per-channel vectors, so that its tensors are seen as rows of channels.
inline bool uses_channels(std::string_view op) {
  return is_channel_sum(op) || op == "bias_add" || op == "channel_scale" || op.starts_with("batch_norm_");
}

// Whether reducing x to y leaves one sum per channel.
inline bool reduces_to_channels(const Shape& x, const Shape& y) {
  return x.rank() > 0 && y.rank() > 0 && y.back() == x.back() && y.elements() == y.back();
}

// The number of segments of rows that reducing x to y sums by channel: 1 for one sum per channel, N for [N,H,W,C] to
// [N,1,1,C]. 0 if the reduction does not have this form, or if the segments are too short to be worth their own sums;
// only the others can be fused.
inline int64_t summed_segments(const Shape& x, const Shape& y) {
  if (reduces_to_channels(x, y)) return 1;
  const auto groups = reduced_axes(x, y).groups;
  const bool segments = groups.size() == 3 && !groups[0].reduced && groups[1].reduced && !groups[2].reduced;
  constexpr int64_t kLeastRows = 4;
  return segments && groups[1].extent >= kLeastRows && groups[2].extent == x.back() ? groups[0].extent : 0;
}

}  // namespace plimsoll::engine
