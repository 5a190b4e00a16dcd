#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ops/families.h"
#include "ops/recurrent.h"

namespace plimsoll::engine {
namespace {

std::vector<OpDef> collect() {
  std::vector<OpDef> all;
  for (auto* family : {
#define X(name) name,
           PLIMSOLL_OP_FAMILIES(X)
#undef X
               recurrent_ops}) {
    auto ops = family();
    std::move(ops.begin(), ops.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<TensorType> types_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<TensorType> types;
  types.reserve(ids.size());
  for (ValueId id : ids) types.push_back(graph.type(id));
  return types;
}

std::string text_of(const std::vector<TensorType>& types) {
  std::string text;
  for (const auto& type : types) text += (text.empty() ? "" : ", ") + to_text(type);
  return text;
}

Status check_node(const Graph& graph, const Node& node);

Status check_body(const Graph& graph, const Node& node) {
  const Graph& body = *node.body;
  for (const Node& inner : body.nodes) {
    PLIMSOLL_TRY(check_node(body, inner));
    if (op_def(inner.op).copies)
      return fail(ErrorCode::kInternal,
                  fmt::format("graph \"{}\": {} cannot be inside a fused node", graph.name, inner.op));
  }
  const auto inputs = types_of(graph, node.inputs), outputs = types_of(graph, node.outputs);
  const auto body_inputs = types_of(body, body.inputs), body_outputs = types_of(body, body.outputs);
  if (inputs != body_inputs || outputs != body_outputs)
    return fail(ErrorCode::kInternal,
                fmt::format("graph \"{}\": fused node {} -> {} has a body {} -> {}", graph.name, text_of(inputs),
                            text_of(outputs), text_of(body_inputs), text_of(body_outputs)));
  return {};
}

Status check_node(const Graph& graph, const Node& node) {
  const OpDef* op = find_op(node.op);
  if (!op) return fail(ErrorCode::kInternal, fmt::format("graph \"{}\": there is no op '{}'", graph.name, node.op));
  if (node.queue != Queue::kCompute && !op->copies)
    return fail(ErrorCode::kInternal, fmt::format("graph \"{}\": {} is on queue {}, which is only for copies",
                                                  graph.name, node.op, name_of(node.queue)));
  if (node.body) return check_body(graph, node);
  const auto inferred = op->infer(types_of(graph, node.inputs), node.attrs);
  if (!inferred) return fail(ErrorCode::kInternal, fmt::format("graph \"{}\": {}", graph.name, inferred.error().what));
  if (const auto actual = types_of(graph, node.outputs); actual != *inferred)
    return fail(ErrorCode::kInternal,
                fmt::format("graph \"{}\": {} has output %{} of type {}, but the op infers {}", graph.name, node.op,
                            graph.value(node.outputs.front()).name, text_of(actual), text_of(*inferred)));
  return {};
}

}  // namespace

const std::vector<OpDef>& all_ops() {
  static const std::vector<OpDef> ops = collect();
  return ops;
}

const OpDef* find_op(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OpDef*> map;
    for (const OpDef& op : all_ops()) {
      [[maybe_unused]] const bool added = map.emplace(op.name, &op).second;
      assert(added);
    }
    return map;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const OpDef& op_def(std::string_view name) {
  const OpDef* op = find_op(name);
  assert(op);
  return *op;
}

Status verify(const Graph& graph) {
  PLIMSOLL_TRY(verify_structure(graph));
  for (const Node& node : graph.nodes) PLIMSOLL_TRY(check_node(graph, node));
  return {};
}

bool is_copy_of_persistent(const Graph& graph, ValueId id) {
  const auto place_in = [](const std::vector<ValueId>& ids, ValueId one) {
    return static_cast<size_t>(std::find(ids.begin(), ids.end(), one) - ids.begin());
  };
  const auto copies = [](const Node& node) { return node.op == "cast" || node.op == "reorder"; };
  while (graph.value(id).producer != kNone) {
    const Node& node = graph.node(graph.value(id).producer);
    size_t input = place_in(node.outputs, id);  // a reorder of several values has one output per input
    if (node.body) {
      const Graph& body = *node.body;
      ValueId inside = body.outputs[input];
      for (; body.value(inside).producer != kNone; inside = body.node(body.value(inside).producer).inputs[0])
        if (!copies(body.node(body.value(inside).producer))) return false;
      input = place_in(body.inputs, inside);
    } else if (!copies(node)) {
      return false;
    }
    id = node.inputs[input];
  }
  return graph.value(id).persistent;
}

double flops_of(const Graph& graph, const Node& node) {
  if (node.body) {
    double sum = 0;
    for (const Node& inner : node.body->nodes) sum += flops_of(*node.body, inner);
    return sum;
  }
  const OpDef& op = op_def(node.op);
  const auto inputs = types_of(graph, node.inputs), outputs = types_of(graph, node.outputs);
  if (op.flops) return op.flops(inputs, outputs, node.attrs);
  double sum = 0;
  for (const auto& type : outputs) sum += static_cast<double>(type.shape.elements());
  return sum;
}

}  // namespace plimsoll::engine
