#include "lower/lower.h"

namespace plimsoll {

double LoweredGraph::seconds() const {
  double sum = 0;
  for (const KernelOffer& kernel : kernels) sum += kernel.seconds;
  return sum;
}

int LoweredGraph::primitives() const {
  int sum = 0;
  for (const KernelOffer& kernel : kernels) sum += kernel.primitives;
  return sum;
}

Result<LoweredGraph> lower(const Graph& graph, const Device& device) {
  Graph lowered = pad_evenly(fold_padding(graph, device), device);
  if (device.has_epilogues()) lowered = fold_bias_gradients(fold_epilogues(lowered));
  lowered = fold_row_gradients(fold_pooling(lowered, device), device);
  if (device.recomputes_freely()) lowered = mask_from_normalised(lowered);
  lowered = group_equal(fuse_elementwise(lowered, device), device);
  return choose_kernels(lowered, device);
}

}  // namespace plimsoll
