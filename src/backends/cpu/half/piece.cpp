#include "backends/cpu/half/piece.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op.h"
#include "ops/split.h"

namespace plimsoll::engine::cpu {
namespace {

// Each operand in float32, or in its own dtype.
Bytes piece_bytes(const TensorType& type) {
  return type.shape.elements() * (is_half(type.dtype) ? 4 : size_of(type.dtype));
}

Cut whole(const Problem& p) {
  return {std::string(p.inputs(), 'w'), std::string(p.outputs(), 's'), {}, 1, 1, 1};
}

// Fills in the letters of every value if the form can be used here.
bool apply(const Problem& p, const SplitForm& form, Cut& cut) {
  if (!form.rows_before.empty() || !form.rows_of_batch.empty()) return false;
  cut = {"", "", form.rows, 0, 0, 1};
  const auto fits = [&](char letter, const Shape& shape) {
    if (letter != 's') return letter == 'w' || letter == '+';
    if (shape.rank() == 0) return false;
    if (cut.samples == 0) cut.samples = shape[0];
    return shape[0] == cut.samples;
  };
  for (size_t i = 0; i < p.inputs(); ++i) {
    cut.inputs += letter_of(form.inputs, i);
    if (!fits(cut.inputs.back(), p.in_shape(i))) return false;
    for (size_t k = 0; k < i; ++k)  // one value in two places must be the same in both
      if (p.node.inputs[k] == p.node.inputs[i] && cut.inputs[k] != cut.inputs[i]) return false;
  }
  for (size_t i = 0; i < p.outputs(); ++i) {
    cut.outputs += letter_of(form.outputs, i);
    if (!fits(cut.outputs.back(), p.out_shape(i))) return false;
    if (cut.outputs.back() == '+' && !is_floating(p.out_dtype(i))) return false;
  }
  return cut.samples > 1;
}

Bytes bytes_by_sample(const Problem& p, const Cut& cut) {
  Bytes bytes = 0;
  for (size_t i = 0; i < p.inputs(); ++i)
    if (cut.inputs[i] == 's') bytes += piece_bytes(p.in(i).type);
  for (size_t i = 0; i < p.outputs(); ++i)
    if (cut.outputs[i] == 's') bytes += piece_bytes(p.out(i).type);
  return bytes / cut.samples;
}

Attrs wide_attrs(const Problem& p, const Cut& cut, int64_t rows) {
  Attrs attrs = p.attrs();
  for (const char* key : {"dtype"})
    if (attrs.has(key) && (attrs.text(key) == "f16" || attrs.text(key) == "bf16")) attrs.set(key, std::string("f32"));
  for (const std::string& key : cut.row_attributes) {
    const Attr& value = attrs.items().at(key);
    if (const auto* list = std::get_if<AttrList>(&value)) {
      AttrList changed = *list;
      changed[0] = changed[0] / cut.samples * rows;
      attrs.set(key, changed);
    } else {
      attrs.set(key, attrs.integer(key) / cut.samples * rows);
    }
  }
  return attrs;
}

Graph piece_graph(const Problem& p, const Cut& cut, int64_t rows) {
  Graph graph;
  Node node = p.node;
  node.attrs = wide_attrs(p, cut, rows);
  const auto add = [&](const Value& old, char letter) {
    Value value = old;
    if (is_half(value.type.dtype)) value.type.dtype = DType::kFloat32;
    if (letter == 's' && cut.pieces > 1) value.type.shape.dims[0] = rows;
    value.layout.clear();
    value.layout_bytes = 0;
    value.persistent = false;
    value.producer = kNone;
    graph.values.push_back(std::move(value));
    return static_cast<ValueId>(graph.values.size()) - 1;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    size_t first = 0;
    while (p.node.inputs[first] != p.node.inputs[i]) ++first;
    node.inputs[i] = first < i ? node.inputs[first] : add(p.in(i), cut.inputs[i]);
    if (first == i) graph.inputs.push_back(node.inputs[i]);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    node.outputs[i] = add(p.out(i), cut.outputs[i]);
    graph.value(node.outputs[i]).producer = 0;
    graph.outputs.push_back(node.outputs[i]);
  }
  graph.nodes = {std::move(node)};
  return graph;
}

// Returns whether the float32 node is one that its op allows.
bool is_valid(const Graph& graph) {
  const Node& node = graph.nodes[0];
  std::vector<TensorType> inputs;
  for (ValueId id : node.inputs) inputs.push_back(graph.type(id));
  const auto types = op_def(node.op).infer(inputs, node.attrs);
  if (!types || types->size() < node.outputs.size()) return false;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if ((*types)[i] != graph.type(node.outputs[i])) return false;
  return true;
}

// Equal pieces need one kernel, others two, and a tail has few samples for the threads.
int64_t rows_of_piece(int64_t samples, int64_t most) {
  const int64_t pieces = (samples + most - 1) / most, even = (samples + pieces - 1) / pieces;
  for (int64_t rows = even; 2 * rows > even; --rows)
    if (samples % rows == 0) return rows;
  return even;
}

}  // namespace

Cut cut_of(const Problem& p) {
  for (const SplitForm& form : split_forms(p.graph, p.node)) {
    Cut cut;
    if (!apply(p, form, cut)) continue;
    const Bytes each = std::max<Bytes>(1, bytes_by_sample(p, cut));
    const int64_t most = std::clamp<int64_t>(p.machine.piece_bytes * p.machine.threads / each, 1, cut.samples);
    cut.rows = rows_of_piece(cut.samples, most);
    cut.pieces = (cut.samples + cut.rows - 1) / cut.rows;
    if (cut.pieces == 1) break;
    if (is_valid(piece_graph(p, cut, cut.rows)) && is_valid(piece_graph(p, cut, cut.rows_of(cut.pieces - 1))))
      return cut;
  }
  return whole(p);
}

Result<PieceKernel> piece_kernel(const Problem& p, const Cut& cut, int64_t rows) {
  auto graph = std::make_shared<Graph>(piece_graph(p, cut, rows));
  const Node& node = graph->nodes[0];
  PLIMSOLL_ASSIGN(Recipe open, recipe_for({{*graph, node}, p.machine}));
  const auto set_layout = [&](ValueId id, const std::vector<Layout>& layouts, size_t i) {
    if (layouts.empty()) return;
    graph->value(id).layout = layouts[i].name;
    graph->value(id).layout_bytes = layouts[i].bytes;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) set_layout(node.inputs[i], open.offer.inputs, i);
  for (size_t i = 0; i < node.outputs.size(); ++i) set_layout(node.outputs[i], open.offer.outputs, i);
  PLIMSOLL_ASSIGN(Recipe bound, recipe_for({{*graph, node}, p.machine, true, open.offer.kernel}));
  bound.offer.workspace = std::max(bound.offer.workspace, open.offer.workspace);
  return PieceKernel{std::move(graph), std::move(bound.offer)};
}

Result<PieceKernel> reorder_kernel(const Value& from, const Value& to, const Machine& machine) {
  auto graph = std::make_shared<Graph>();
  graph->values = {from, to};
  graph->inputs = {0};
  graph->outputs = {1};
  graph->nodes = {Node{"reorder", {0}, {1}, {{"layout", to.layout}}, "", Stage::kForward, nullptr}};
  PLIMSOLL_ASSIGN(Recipe recipe, recipe_for({{*graph, graph->nodes[0]}, machine}));
  return PieceKernel{std::move(graph), std::move(recipe.offer)};
}

}  // namespace plimsoll::engine::cpu
