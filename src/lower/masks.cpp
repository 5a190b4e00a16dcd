// The gradient of relu(batch_norm_apply(x)) is masked where the normalised value is not positive. Its two readers,
// batch_norm_grad_stats and batch_norm_input_grad, read x anyway. If arithmetic is cheap compared with memory, each of
// them computes the mask from x. Then the relu's result is not read and the masked gradient is not written: five passes
// over the tensor instead of seven. The result is identical bit for bit, because the same numbers are normalised in the
// same way.
#include <optional>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/lower.h"
#include "ops/predicates.h"

namespace plimsoll::engine {
namespace {

struct Masked {
  NodeId mask = kNone;       // relu_grad
  NodeId normalise = kNone;  // the batch_norm_apply; the mask is the sign of its result
  NodeId sums = kNone, gradient = kNone;
};

// Returns the normalisation that produces the value a relu_grad reads: through a relu, or directly if it was
// recomputed.
NodeId normalisation_behind(const Graph& graph, ValueId value) {
  NodeId producer = graph.value(value).producer;
  if (producer != kNone && graph.node(producer).op == "relu" && is_plain_relu(graph.node(producer).attrs))
    producer = graph.value(graph.node(producer).inputs[0]).producer;
  return producer != kNone && graph.node(producer).op == "batch_norm_apply" ? producer : kNone;
}

std::optional<Masked> find(const Graph& graph, const std::vector<std::vector<NodeId>>& readers, NodeId id) {
  const Node& mask = graph.node(id);
  if (mask.op != "relu_grad" || !is_plain_relu(mask.attrs)) return std::nullopt;
  Masked found{id, normalisation_behind(graph, mask.inputs[1]), kNone, kNone};
  const auto& reads = readers[static_cast<size_t>(mask.outputs[0])];
  if (found.normalise == kNone || reads.size() != 2) return std::nullopt;
  for (NodeId reader : reads) {
    const Node& node = graph.node(reader);
    const bool over_x = node.inputs[0] == mask.outputs[0] && node.inputs.size() > 1 &&
                        node.inputs[1] == graph.node(found.normalise).inputs[0];
    if (node.op == "batch_norm_grad_stats" && over_x) found.sums = reader;
    if (node.op == "batch_norm_input_grad" && over_x) found.gradient = reader;
  }
  return found.sums != kNone && found.gradient != kNone ? std::optional(found) : std::nullopt;
}

}  // namespace

Graph mask_from_normalised(const Graph& graph) {
  const auto readers = readers_of(graph);
  std::vector<std::optional<Masked>> reader_of(graph.nodes.size());
  const std::vector<bool> handed_out = handed_out_values(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto found = find(graph, readers, static_cast<NodeId>(n));
    if (!found || handed_out[static_cast<size_t>(graph.nodes[n].outputs[0])]) continue;
    gone[n] = true;
    reader_of[static_cast<size_t>(found->sums)] = reader_of[static_cast<size_t>(found->gradient)] = found;
  }
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (gone[n]) continue;
    if (!reader_of[n]) {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    std::vector<ValueId> inputs;
    for (ValueId id : graph.node(reader_of[n]->normalise).inputs) inputs.push_back(rewrite.to(id));
    Node mask = graph.node(reader_of[n]->mask);
    const ValueId old = mask.outputs[0];
    mask.attrs.set("from", std::string("input"));
    mask.inputs = {rewrite.to(mask.inputs[0]), rewrite.clone_node(reader_of[n]->normalise, inputs)[0]};
    mask.outputs = {rewrite.add_value(graph.value(old))};
    rewrite.bind(old, mask.outputs[0]);
    rewrite.add_node(std::move(mask));
    rewrite.copy_node(static_cast<NodeId>(n));
  }
  return rewrite.finish();
}

}  // namespace plimsoll::engine
