#include "plan/inside_readers.h"

#include <algorithm>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/fused_body.h"
#include "ops/predicates.h"
#include "plan/recompute_units.h"

namespace plimsoll::engine {
namespace {

class ReaderFuser {
 public:
  ReaderFuser(const LoweredGraph& ordered, const Device& device)
      : graph_(ordered.graph),
        device_(device),
        root_(viewed_values(graph_)),
        last_use_(graph_.values.size(), kNone),
        updated_at_(graph_.values.size(), INT32_MAX) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const ValueId id : graph_.nodes[n].inputs)
        last_use_[static_cast<size_t>(root_[static_cast<size_t>(id)])] = static_cast<NodeId>(n);
    for (const Update& update : graph_.updates)
      updated_at_[static_cast<size_t>(update.persistent)] = graph_.value(update.value).producer;
    result_.graph = ordered;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].stage == Stage::kBackward) fuse_into(static_cast<NodeId>(n));
  }

  InsideReaders finish() {
    if (result_.values == 0) return std::move(result_);
    KnownKernels known;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = result_.graph.graph.nodes[n];
      known[graph_.value(node.outputs[0]).name] = {node.outputs.size(), &result_.graph.kernels[n]};
    }
    return {without_unread_outputs(std::move(result_.graph.graph), known, device_), result_.values};
  }

 private:
  void fuse_into(NodeId reader) {
    Node& node = result_.graph.graph.nodes[static_cast<size_t>(reader)];
    KernelOffer& kernel = result_.graph.kernels[static_cast<size_t>(reader)];
    const std::vector<ValueId> inputs = node.inputs;
    for (const ValueId id : inputs) {
      const NodeId producer = graph_.value(id).producer;
      if (producer == kNone || graph_.node(producer).stage != Stage::kForward) continue;
      const Node remaker = remaker_of(graph_, id);
      if (!can_run_again(remaker) || !is_there(remaker, reader)) continue;
      const auto fused = fused_into_reader(graph_, remaker, id, node, device_);
      if (!fused) continue;
      auto offer = device_.offer(graph_, *fused);
      if (!offer || offer->seconds >= kernel.seconds) continue;
      node = *fused;
      kernel = std::move(*offer);
      ++result_.values;
    }
  }

  // Whether the inputs of `remaker` are alive while `reader` runs, and have the contents they had in the forward pass.
  bool is_there(const Node& remaker, NodeId reader) const {
    return std::all_of(remaker.inputs.begin(), remaker.inputs.end(), [&](ValueId id) {
      const auto root = static_cast<size_t>(root_[static_cast<size_t>(id)]);
      return graph_.values[root].persistent ? reader <= updated_at_[root] : last_use_[root] >= reader;
    });
  }

  const Graph& graph_;
  const Device& device_;
  std::vector<ValueId> root_;
  std::vector<NodeId> last_use_;    // per viewed value
  std::vector<NodeId> updated_at_;  // per persistent value
  InsideReaders result_;
};

}  // namespace

InsideReaders compute_inside_readers(const LoweredGraph& ordered, const Device& device) {
  return ReaderFuser(ordered, device).finish();
}

}  // namespace plimsoll::engine
