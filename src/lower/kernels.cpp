#include <fmt/format.h>

#include "graph/rewrite.h"
#include "lower/lower.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

// Adds a reorder node and returns the value in the other layout.
ValueId reordered(Rewrite& rewrite, ValueId id, const Layout& layout, const Node& wanted_by) {
  Value value = rewrite.graph().value(id);
  value.name += "/reordered";
  value.layout = layout.name;
  value.layout_bytes = layout.bytes;
  value.persistent = false;
  if (value.category != Category::kGradients) value.category = Category::kTemporaries;
  const ValueId result = rewrite.add_value(std::move(value));
  rewrite.add_node({"reorder", {id}, {result}, {{"layout", layout.name}}, wanted_by.layer, wanted_by.stage, nullptr});
  return result;
}

// Like reordered(), but reorders weights only once, because the forward and the backward pass both read them. Other
// values are large: keeping them in two layouts would cost more than reordering them twice.
ValueId moved_to(std::map<std::pair<ValueId, std::string>, ValueId>& moved, Rewrite& rewrite, ValueId id,
                 const Layout& layout, const Node& wanted_by) {
  if (!is_copy_of_persistent(rewrite.graph(), id)) return reordered(rewrite, id, layout, wanted_by);
  const auto [place, added] = moved.try_emplace({id, layout.name}, kNone);
  if (added) place->second = reordered(rewrite, id, layout, wanted_by);
  return place->second;
}

}  // namespace

Result<LoweredGraph> choose_kernels(const Graph& graph, const Device& device) {
  Rewrite rewrite(graph);
  std::map<std::pair<ValueId, std::string>, ValueId> moved;  // (value, layout) -> reordered value
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node node = graph.nodes[n];
    PLIMSOLL_ASSIGN(const KernelOffer offer, device.offer(graph, node));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      node.inputs[i] = rewrite.to(node.inputs[i]);
      const Layout wanted = offer.inputs.empty() ? Layout{} : offer.inputs[i];
      if (rewrite.graph().value(node.inputs[i]).layout != wanted.name)
        node.inputs[i] = moved_to(moved, rewrite, node.inputs[i], wanted, node);
    }
    std::vector<ValueId> plain;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId old = node.outputs[i];
      Value value = graph.value(old);
      if (!offer.outputs.empty() && !offer.outputs[i].name.empty()) {
        value.name += "/blocked";
        value.layout = offer.outputs[i].name;
        value.layout_bytes = offer.outputs[i].bytes;
      }
      node.outputs[i] = rewrite.add_value(std::move(value));
      rewrite.bind(old, node.outputs[i]);
    }
    const std::vector<ValueId> outputs = node.outputs;
    const std::vector<ValueId> old_outputs = graph.nodes[n].outputs;
    rewrite.add_node(std::move(node));
    // All other nodes read row-major today. A node that could read this layout would have to be handled here.
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!rewrite.graph().value(outputs[i]).layout.empty())
        rewrite.bind(old_outputs[i], reordered(rewrite, outputs[i], {}, graph.nodes[n]));
  }
  LoweredGraph lowered;
  lowered.graph = group_moves(rewrite.finish(), device);
  for (const Node& node : lowered.graph.nodes) {
    PLIMSOLL_ASSIGN(KernelOffer offer, device.offer(lowered.graph, node));
    lowered.kernels.push_back(std::move(offer));
  }
  return lowered;
}

}  // namespace plimsoll::engine
