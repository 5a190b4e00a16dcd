// One test harness for all ops. From an OpCase it builds the op's graph, alone and with its gradient rule, runs graphs
// with the reference, and runs single nodes on a backend between sentinels.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <set>

#include "device/kernel.h"
#include "ops/build.h"
#include "ops/op.h"
#include "tests/ops/tensors.h"

namespace plimsoll::engine::testing {

inline TensorType in_precision(TensorType type, DType floating) {
  if (is_floating(type.dtype)) type.dtype = floating;
  return type;
}

inline Attrs in_precision(Attrs attrs, DType floating) {
  if (attrs.has("dtype") && attrs.text("dtype") == "f32") attrs.set("dtype", std::string(name_of(floating)));
  return attrs;
}

// The op, then its gradient rule for the inputs that the case differentiates. The graph's inputs are those of the op,
// then "dy".
struct CaseGraph {
  Graph graph;
  std::vector<ValueId> inputs, outputs;
  ValueId dy = kNone;              // kNone: the case differentiates nothing
  std::vector<ValueId> gradients;  // one per input of the op
};

// Returns the dtype of an input when tensors are in half precision: sums, statistics, losses and optimizers stay
// float32.
inline DType dtype_of_input(const OpDef& op, const OpCase& one, size_t i, DType floating) {
  static const std::set<std::string> kWide = {
      "weighted_sum",   "weighted_sum_grad", "l1_l2_penalty",  "l1_l2_grad", "sgd",
      "adam",           "squared_norm",      "clip_factor",    "clip_value", "unscale",
      "moving_average", "loss_scale",        "scheduled_rate", "keep_if"};
  if (!is_half(floating)) return floating;
  const bool norm = op.name.starts_with("batch_norm_") || op.name.starts_with("layer_norm");
  const bool loss =
      op.name.find("entropy") != std::string::npos || op.name.find("_error") != std::string::npos || op.name == "match";
  const bool wide = kWide.count(op.name) != 0 || (norm && one.inputs[i].shape.rank() == 1) ||
                    (loss && i != (op.name.ends_with("_grad") ? 1U : 0U)) ||
                    (op.name == "attention_grad" && i + 1 == one.inputs.size()) ||
                    (op.name.ends_with("_rows") && i != 1) ||
                    // Gradients of float32 layers together with half-precision ones.
                    (op.name == "count_not_finite" && i == 1);
  return wide ? DType::kFloat32 : floating;
}

inline Result<CaseGraph> graph_of(const OpDef& op, const OpCase& one, DType floating) {
  CaseGraph made;
  GraphBuilder b = make_builder();
  for (size_t i = 0; i < one.inputs.size(); ++i)
    made.inputs.push_back(b.input(fmt::format("x{}", i),
                                  in_precision(one.inputs[i], dtype_of_input(op, one, i, floating)), Category::kInputs,
                                  false));
  const bool stays_wide = op.name == "count_periods" && is_half(floating);  // numbers of the optimizer
  made.outputs = b.add(op.name, made.inputs, in_precision(one.attrs, stays_wide ? DType::kFloat32 : floating), "y");
  if (!b.status()) return tl::make_unexpected(b.status().error());
  if (!one.differentiate.empty()) {
    made.dy = b.input("dy", b.graph().type(made.outputs[0]), Category::kGradients, false);
    std::vector<bool> wanted(made.inputs.size(), false);
    for (size_t i : one.differentiate) wanted[i] = true;
    std::vector<ValueId> arrived(made.outputs.size(), kNone);
    arrived[0] = made.dy;
    const Node node = b.graph().nodes.front();
    made.gradients = op.gradient({b, node, arrived, wanted});
    if (!b.status()) return tl::make_unexpected(b.status().error());
  }
  made.graph = b.take();
  return made;
}

inline std::vector<Tensor> draw_inputs(const OpDef& op, const OpCase& one, DType floating) {
  std::mt19937_64 random(std::hash<std::string>{}(op.name + "/" + one.name));
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < one.inputs.size(); ++i)
    tensors.push_back(draw(in_precision(one.inputs[i], floating), one.fill[i], random));
  return tensors;
}

inline std::vector<Tensor> draw_inputs(const Graph& graph, const std::string& fill) {
  std::mt19937_64 random(5);
  std::vector<Tensor> tensors;
  for (ValueId id : graph.inputs) tensors.push_back(draw(graph.type(id), fill, random));
  return tensors;
}

// Runs one node with its op's reference.
inline std::vector<Tensor> reference_outputs(const Graph& graph, const Node& node, const std::vector<Tensor>& inputs) {
  std::vector<Buffer> buffers;
  std::vector<TensorView> in_views, out_views;
  for (const Tensor& t : inputs) {
    buffers.emplace_back(t.type.bytes());
    store(t, buffers.back().data());
    in_views.push_back({t.type, buffers.back().data()});
  }
  for (ValueId id : node.outputs) {
    buffers.emplace_back(graph.type(id).bytes());
    out_views.push_back({graph.type(id), buffers.back().data()});
  }
  op_def(node.op).reference({in_views, out_views, node.attrs, node.body.get()});
  std::vector<Tensor> outputs;
  for (const TensorView& view : out_views) outputs.push_back(load(view.type, view.data));
  for (const Buffer& buffer : buffers)
    if (!buffer.intact()) throw std::runtime_error(node.op + ": the reference wrote outside its tensors");
  return outputs;
}

// Returns every value of an f64 graph, given its inputs in order.
inline std::vector<Tensor> run_by_reference(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) values[static_cast<size_t>(graph.inputs[i])] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<Tensor> ins;
    for (ValueId id : node.inputs) ins.push_back(values[static_cast<size_t>(id)]);
    auto outs = reference_outputs(graph, node, ins);
    for (size_t i = 0; i < outs.size(); ++i) values[static_cast<size_t>(node.outputs[i])] = std::move(outs[i]);
  }
  return values;
}

struct NodeRun {
  std::string kernel;
  std::vector<Tensor> outputs;
  std::string damage;  // describes writes outside the outputs; empty if there were none
};

// Binds one node whose values have the layouts given in the graph, and runs it in the backend's memory. Buffers are
// copied there and back with their guards. A buffer that is both input and output is copied once.
inline Result<NodeRun> run_bound(const Backend& backend, const Graph& graph, const Node& node,
                                 const std::vector<Buffer*>& inputs, const std::vector<Buffer*>& outputs) {
  PLIMSOLL_ASSIGN(const KernelOffer offer, backend.device().offer(graph, node));
  Buffer workspace(offer.workspace);
  std::map<Buffer*, Bytes> places = {{&workspace, 0}};
  Bytes end = workspace.image_bytes();
  for (const auto* list : {&inputs, &outputs})
    for (Buffer* buffer : *list)
      if (places.emplace(buffer, end).second) end += buffer->image_bytes();
  PLIMSOLL_ASSIGN(const std::unique_ptr<Memory> memory, backend.reserve(Space::kDevice, end));
  for (const auto& [buffer, offset] : places)
    PLIMSOLL_TRY(memory->write(offset, buffer->image(), buffer->image_bytes()));
  const auto addresses = [&](const std::vector<Buffer*>& list) {
    std::vector<void*> all;
    for (Buffer* buffer : list) all.push_back(memory->at(places[buffer] + Buffer::kGuard));
    return all;
  };
  const std::vector<void*> in = addresses(inputs), out = addresses(outputs);
  PLIMSOLL_ASSIGN(const std::unique_ptr<Kernel> kernel,
                  backend.bind({graph, node, offer.kernel, in, out, memory->at(Buffer::kGuard), offer.workspace}));
  kernel->run();
  PLIMSOLL_TRY(backend.finish());
  for (const auto& [buffer, offset] : places)
    PLIMSOLL_TRY(memory->read(offset, buffer->image(), buffer->image_bytes()));
  return NodeRun{offer.kernel, {}, workspace.intact() ? "" : " the workspace's guard"};
}

// Converts a value of the graph to another layout with a reorder node.
inline Result<std::string> reorder(const Backend& backend, const Value& from, const Value& to, Buffer* source,
                                   Buffer* target) {
  Graph graph;
  graph.values = {from, to};
  graph.values[0].name = "from";
  graph.values[1].name = "to";
  graph.values[0].producer = kNone;
  graph.values[1].producer = 0;
  graph.inputs = {0};
  graph.nodes = {Node{"reorder", {0}, {1}, {{"layout", to.layout}}, "", Stage::kForward, nullptr}};
  PLIMSOLL_ASSIGN(const NodeRun run, run_bound(backend, graph, graph.nodes[0], {source}, {target}));
  return run.damage;
}

// Runs one node on a backend: reorders the inputs into the layouts that the offer requires, runs the kernel, and
// reorders back.
inline Result<NodeRun> run_on_backend(const Backend& backend, Graph graph, const Node& node,
                                      const std::vector<Tensor>& inputs, const InPlace* alias = nullptr) {
  PLIMSOLL_ASSIGN(const KernelOffer offer, backend.device().offer(graph, node));
  std::string damage;
  std::deque<Buffer> buffers;  // a deque, because references to its elements must stay valid
  std::vector<Buffer*> in_data, out_data;
  const Graph plain = graph;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Value& value = graph.value(node.inputs[i]);
    buffers.emplace_back(value.type.bytes());
    store(inputs[i], buffers.back().data());
    Buffer* data = &buffers.back();
    if (!offer.inputs.empty() && !offer.inputs[i].name.empty()) {
      value.layout = offer.inputs[i].name;
      value.layout_bytes = offer.inputs[i].bytes;
      buffers.emplace_back(value.bytes());
      PLIMSOLL_ASSIGN(const std::string hurt,
                      reorder(backend, plain.value(node.inputs[i]), value, data, &buffers.back()));
      damage += hurt;
      data = &buffers.back();
    }
    in_data.push_back(data);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Value& value = graph.value(node.outputs[i]);
    if (!offer.outputs.empty() && !offer.outputs[i].name.empty()) {
      value.layout = offer.outputs[i].name;
      value.layout_bytes = offer.outputs[i].bytes;
    }
    buffers.emplace_back(value.bytes());
    out_data.push_back(alias && alias->output == i ? in_data[alias->input] : &buffers.back());
  }
  PLIMSOLL_ASSIGN(NodeRun run, run_bound(backend, graph, node, in_data, out_data));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Value& value = graph.value(node.outputs[i]);
    Buffer* data = out_data[i];
    if (!value.layout.empty()) {
      buffers.emplace_back(value.type.bytes());
      PLIMSOLL_ASSIGN(const std::string hurt,
                      reorder(backend, value, plain.value(node.outputs[i]), data, &buffers.back()));
      damage += hurt;
      data = &buffers.back();
    }
    run.outputs.push_back(load(value.type, data->data()));
  }
  for (size_t i = 0; i < buffers.size(); ++i)
    if (!buffers[i].intact()) damage += fmt::format(" a tensor's guard ({} of {})", i, buffers.size());
  run.damage += damage;
  return run;
}

// Returns the largest |got - wanted| in units of 2^-24 of the largest |wanted|; infinite for a NaN or for any
// difference of integers.
inline double error_in_units(const Tensor& got, const Tensor& wanted) {
  // Numbers below the smallest normal float32, 2^-126, have fewer than 24 bits, and so has a product of such a number
  // with an input of up to 2^7 (silu of -100). So the unit is at least that of such a product.
  double most = 0x1p-119, worst = 0;
  for (double w : wanted.values) most = std::max(most, std::fabs(w));
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    if (got.values[i] == wanted.values[i]) continue;
    const double difference = std::fabs(got.values[i] - wanted.values[i]);
    if (!is_floating(got.type.dtype) || !(difference < INFINITY)) return INFINITY;
    worst = std::max(worst, difference / (most * 0x1p-24));
  }
  return worst;
}

}  // namespace plimsoll::engine::testing
