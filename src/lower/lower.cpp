#include "lower/lower.h"

#include <set>

#include "lower/transposes.h"

namespace plimsoll::engine {

double LoweredGraph::seconds() const {
  double sum = 0;
  for (const KernelOffer& kernel : kernels) sum += kernel.seconds;
  return sum;
}

int LoweredGraph::primitives() const {
  int sum = 0;
  std::set<std::string_view> counted;
  for (const KernelOffer& kernel : kernels)
    if (kernel.primitive_key.empty() || counted.insert(kernel.primitive_key).second) sum += kernel.primitives;
  return sum;
}

// Runs one pass at a time, so that only the input and the output graph of a pass are in memory.
Result<LoweredGraph> lower(Graph graph, const Device& device) {
  graph = remove_transposes(std::move(graph));
  graph = fold_padding(graph, device);
  graph = pad_evenly(graph, device);
  if (device.has_epilogues()) {
    graph = fold_epilogues(graph);
    graph = fold_bias_gradients(graph);
  }
  graph = fold_pooling(graph, device);
  graph = fold_row_gradients(graph, device);
  if (device.recomputes_freely()) graph = mask_from_normalised(graph);
  graph = fuse_elementwise(graph, device);
  graph = group_equal(graph, device);
  return choose_kernels(graph, device);
}

}  // namespace plimsoll::engine
