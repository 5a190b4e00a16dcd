#include "autodiff/gradient.h"

#include <cassert>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

// Returns, for each value, whether it depends on one of `wrt`. Such a value needs a gradient if the loss depends on it.
std::vector<bool> reachable_from(const Graph& graph, const std::vector<ValueId>& wrt) {
  std::vector<bool> wants(graph.values.size(), false);
  for (ValueId id : wrt) wants[static_cast<size_t>(id)] = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (ValueId id : node.inputs) any = any || (wants[static_cast<size_t>(id)] && is_floating(graph.type(id).dtype));
    if (!any || !op_def(node.op).gradient) continue;
    for (ValueId id : node.outputs) wants[static_cast<size_t>(id)] = is_floating(graph.type(id).dtype);
  }
  return wants;
}

}  // namespace

std::vector<ValueId> append_gradients(GraphBuilder& b, ValueId loss, const std::vector<ValueId>& wrt, ValueId scale) {
  const std::vector<bool> wants = reachable_from(b.graph(), wrt);
  const auto forward_nodes = static_cast<NodeId>(b.graph().nodes.size());
  std::vector<ValueId> gradients(b.graph().values.size(), kNone);
  const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);

  const TensorType& loss_type = b.graph().type(loss);
  if (scale == kNone)
    scale = b.add1("fill", {},
                   {{"shape", loss_type.shape.dims}, {"value", 1.0}, {"dtype", std::string(name_of(loss_type.dtype))}});
  gradients[static_cast<size_t>(loss)] = scale;

  for (NodeId id = forward_nodes - 1; id >= 0; --id) {
    const Node node = b.graph().node(id);  // copied: adding nodes may reallocate the vector
    std::vector<ValueId> output_grads;
    bool any_grad = false;
    for (ValueId out : node.outputs) {
      output_grads.push_back(gradients[static_cast<size_t>(out)]);
      any_grad = any_grad || output_grads.back() != kNone;
    }
    std::vector<bool> wanted;
    bool any_wanted = false;
    for (ValueId in : node.inputs) {
      wanted.push_back(wants[static_cast<size_t>(in)] && is_floating(b.graph().type(in).dtype));
      any_wanted = any_wanted || wanted.back();
    }
    const OpDef& def = op_def(node.op);
    if (!any_grad || !any_wanted || !def.gradient) continue;

    const auto layer = b.in_layer(node.layer);
    const std::vector<ValueId> input_grads = def.gradient(GradientCall{b, node, output_grads, wanted});
    assert(input_grads.size() == node.inputs.size());
    for (size_t i = 0; i < input_grads.size(); ++i) {
      if (input_grads[i] == kNone || !wanted[i]) continue;
      ValueId& sum = gradients[static_cast<size_t>(node.inputs[i])];
      sum = sum == kNone ? input_grads[i] : b.add1("add", {sum, input_grads[i]});
    }
  }

  std::vector<ValueId> result;
  for (ValueId id : wrt) result.push_back(gradients[static_cast<size_t>(id)]);
  return result;
}

}  // namespace plimsoll::engine
