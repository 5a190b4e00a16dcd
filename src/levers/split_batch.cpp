#include "levers/split_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "graph/rewrite.h"
#include "levers/split_analysis.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

bool trains(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.stage == Stage::kBackward; });
}

class Splitter {
 public:
  Splitter(const Graph& graph, SplitAnalysis analysis, int64_t pieces)
      : graph_(graph),
        analysis_(std::move(analysis)),
        pieces_(pieces),
        rewrite_(graph),
        parts_(graph.values.size()),
        temporary_(graph.values.size()),
        sums_(graph.values.size(), kNone),
        wide_sums_(graph.values.size(), kNone),
        known_(graph.values.size(), false) {
    for (ValueId id : graph.inputs) known_[at(id)] = true;
  }

  // Returns none if a piece of a node has another type than its op infers.
  std::optional<Graph> run() {
    for (segment_ = 0; segment_ < analysis_.segments; ++segment_) {
      for (piece_ = 0; piece_ < pieces_; ++piece_) each_node_of_segment([&](NodeId n) { add_piece(n); });
      each_node_of_segment([&](NodeId n) { merge_statistics(n); });
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!analysis_.forms[n]) compute_once(static_cast<NodeId>(n));
    for (ValueId id : graph_.outputs) join(id);
    for (const Update& update : graph_.updates) join(update.value);
    if (failed_) return {};
    return rewrite_.finish();
  }

 private:
  // A part of a value that exists as a whole. It is made again in each segment, so that it need not be kept.
  struct Temporary {
    int segment = kNone;
    int64_t piece = kNone;
    ValueId value = kNone;
  };

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  const SplitForm& form_of(NodeId n) const { return *analysis_.forms[at(n)]; }

  template <typename Visit>
  void each_node_of_segment(Visit visit) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (analysis_.forms[n] && analysis_.segment[n] == segment_) visit(static_cast<NodeId>(n));
  }

  // The first sample of a piece. Earlier pieces have one sample more if the batch cannot be divided.
  int64_t first_sample(int64_t piece) const {
    return piece * (analysis_.samples / pieces_) + std::min(piece, analysis_.samples % pieces_);
  }
  int64_t rows_before(int64_t rows) const { return rows / analysis_.samples * first_sample(piece_); }
  int64_t rows_of_piece(int64_t rows) const {
    return rows / analysis_.samples * (first_sample(piece_ + 1) - first_sample(piece_));
  }
  TensorType type_of_piece(ValueId id) const {
    TensorType type = graph_.type(id);
    type.shape.dims[0] = rows_of_piece(type.shape[0]);
    return type;
  }
  std::string name_of_piece(ValueId id) const { return fmt::format("{}/{}", graph_.value(id).name, piece_ + 1); }

  std::vector<TensorType> infer(const Node& node) {
    std::vector<TensorType> inputs;
    for (ValueId id : node.inputs) inputs.push_back(rewrite_.graph().type(id));
    auto types = op_def(node.op).infer(inputs, node.attrs);
    if (types) return *std::move(types);
    failed_ = true;
    return std::vector<TensorType>(std::max<size_t>(1, node.outputs.size()));
  }

  // Adds a node that the old graph does not have, on behalf of the node that makes `of`.
  ValueId add(const std::string& op, std::vector<ValueId> inputs, Attrs attrs, ValueId of, std::string name) {
    Value value = graph_.value(of);
    const NodeId producer = value.producer;
    Node node{op, std::move(inputs), {}, std::move(attrs), value.layer, Stage::kForward, nullptr};
    if (producer != kNone) node.stage = graph_.node(producer).stage;
    value.type = infer(node).front();
    value.persistent = false;
    value.name = std::move(name);
    node.outputs = {rewrite_.add_value(std::move(value))};
    const ValueId id = node.outputs[0];
    rewrite_.add_node(std::move(node));
    return id;
  }
  ValueId cast(ValueId value, DType dtype, ValueId of, std::string name) {
    return add("cast", {value}, {{"dtype", std::string(name_of(dtype))}}, of, std::move(name));
  }

  // Returns a whole value in the new graph. Its node is added when the first reader needs it.
  ValueId whole(ValueId id) {
    if (!known_[at(id)]) {
      assert(!analysis_.forms[at(graph_.value(id).producer)]);
      compute_once(graph_.value(id).producer);
    }
    return rewrite_.to(id);
  }

  void compute_once(NodeId n) {
    const Node& node = graph_.node(n);
    if (known_[at(node.outputs[0])]) return;
    for (ValueId id : node.outputs) known_[at(id)] = true;
    for (ValueId id : node.inputs) whole(id);
    const ValueId wide = node.op == "cast" ? wide_sums_[at(node.inputs[0])] : kNone;
    if (wide != kNone && rewrite_.graph().type(wide) == graph_.type(node.outputs[0]))
      rewrite_.bind(node.outputs[0], wide);
    else
      rewrite_.copy_node(n);
  }

  // Returns this piece of a value.
  ValueId part(ValueId id) {
    if (!parts_[at(id)].empty()) return parts_[at(id)][at(static_cast<int32_t>(piece_))];
    Temporary& made = temporary_[at(id)];
    if (made.segment != segment_ || made.piece != piece_) made = {segment_, piece_, new_part(id)};
    return temporary_[at(id)].value;
  }

  ValueId new_part(ValueId id) {
    const NodeId producer = graph_.value(id).producer;
    if (!analysis_.sliced[at(id)] && producer != kNone)
      if (const auto form = form_of_repeated(producer)) return add_node(producer, *form).front();
    const int64_t rows = graph_.type(id).shape[0];
    return add("slice", {whole(id)},
               {{"axis", int64_t{0}}, {"begin", rows_before(rows)}, {"size", rows_of_piece(rows)}}, id,
               name_of_piece(id));
  }

  // A cheap node that no sample reaches, such as `fill`, but whose result consists of one row or more per sample: the
  // form in which it can run for one piece alone.
  std::optional<SplitForm> form_of_repeated(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.outputs.size() != 1 || op_def(node.op).recompute != Recompute::kCheap) return {};
    for (SplitForm& form : split_forms(graph_, node)) {
      bool fits = letter_of(form.outputs, 0) == 's';
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Shape& shape = graph_.type(node.inputs[i]).shape;
        if (letter_of(form.inputs, i) == 's') fits = fits && shape.rank() > 0 && shape[0] % analysis_.samples == 0;
      }
      if (fits) return std::move(form);
    }
    return {};
  }

  Attrs attrs_of_piece(const Node& node, const SplitForm& form) const {
    Attrs attrs = node.attrs;
    for (const std::string& key : form.rows) {
      const Attr& value = attrs.items().at(key);
      if (const auto* list = std::get_if<AttrList>(&value)) {
        AttrList changed = *list;
        changed[0] = rows_of_piece(changed[0]);
        attrs.set(key, changed);
      } else {
        attrs.set(key, rows_of_piece(attrs.integer(key)));
      }
    }
    if (!form.rows_before.empty()) {
      const int64_t already = attrs.has(form.rows_before) ? attrs.integer(form.rows_before) : 0;
      const int64_t before = already + rows_before(graph_.type(node.outputs[0]).shape[0]);
      if (before > 0) attrs.set(form.rows_before, before);
    }
    if (!form.rows_of_batch.empty() && !attrs.has(form.rows_of_batch)) {
      const Shape& shape = graph_.type(node.inputs[0]).shape;
      attrs.set(form.rows_of_batch, shape.elements() / shape.back());
    }
    return attrs;
  }

  // Adds a node for this piece. Returns its outputs.
  std::vector<ValueId> add_node(NodeId n, const SplitForm& form) {
    Node node = graph_.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      node.inputs[i] = letter_of(form.inputs, i) == 's' ? part(node.inputs[i]) : whole(node.inputs[i]);
    node.attrs = attrs_of_piece(graph_.node(n), form);
    const std::vector<TensorType> types = infer(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId old = node.outputs[i];
      Value value = graph_.value(old);
      if (letter_of(form.outputs, i) == 's') value.type = type_of_piece(old);
      failed_ = failed_ || i >= types.size() || types[i] != value.type;
      value.name = name_of_piece(old);
      node.outputs[i] = rewrite_.add_value(std::move(value));
    }
    std::vector<ValueId> outputs = node.outputs;
    rewrite_.add_node(std::move(node));
    return outputs;
  }

  void add_piece(NodeId n) {
    const std::vector<ValueId> made = add_node(n, form_of(n));
    for (size_t i = 0; i < made.size(); ++i) {
      const ValueId old = graph_.node(n).outputs[i];
      if (letter_of(form_of(n).outputs, i) == '+')
        add_to_sum(old, made[i]);
      else
        parts_[at(old)].push_back(made[i]);
    }
  }

  // The parts of a sum in half precision are added in f32, and the sum is rounded once.
  void add_to_sum(ValueId old, ValueId part) {
    const DType dtype = graph_.type(old).dtype;
    const bool last = piece_ + 1 == pieces_, half = wide(dtype) != dtype;
    const std::string& name = graph_.value(old).name;
    if (half) part = cast(part, wide(dtype), old, name_of_piece(old) + "/wide");
    ValueId& sum = sums_[at(old)];
    sum = sum == kNone ? part : add("add", {sum, part}, {}, old, last && !half ? name : name_of_piece(old) + "/sum");
    if (!last) return;
    if (half) wide_sums_[at(old)] = sum;
    rewrite_.bind(old, half ? cast(sum, dtype, old, name) : sum);
    known_[at(old)] = true;
  }

  // Chan's formula for all pieces at once. With w the share of a piece in the rows: mean = sum w * mean of piece,
  // var = sum w * (var of piece + (mean of piece - mean)^2).
  void merge_statistics(NodeId n) {
    const Node& node = graph_.node(n);
    if (letter_of(form_of(n).outputs, 0) != 'm') return;
    const ValueId old_mean = node.outputs[0], old_var = node.outputs[1];
    const TensorType& type = graph_.type(old_mean);
    const AttrList table = {pieces_, type.shape[0]};
    const auto name = [&](const char* what) { return fmt::format("{}/{}", graph_.value(old_mean).name, what); };
    const auto step = [&](const char* op, std::vector<ValueId> inputs, const char* what, Attrs attrs = {}) {
      return add(op, std::move(inputs), std::move(attrs), old_mean, name(what));
    };
    const auto stacked = [&](ValueId old, const char* what) {
      return step("reshape", {step("concat", parts_[at(old)], what, {{"axis", int64_t{0}}})}, what, {{"shape", table}});
    };
    const ValueId means = stacked(old_mean, "means"), vars = stacked(old_var, "vars");
    if (shares_ == kNone) shares_ = step("constant", {}, "shares", share_attrs(wide(type.dtype)));
    const ValueId shares = step("broadcast", {shares_}, "shares", {{"shape", table}});
    const auto mean_of = [&](ValueId rows, ValueId old) {
      const ValueId sum = add("reduce_to", {step("multiply", {rows, shares}, "shared")},
                              {{"shape", AttrList(type.shape.dims)}}, old, graph_.value(old).name);
      rewrite_.bind(old, sum);
      known_[at(old)] = true;
      return sum;
    };
    const ValueId mean = mean_of(means, old_mean);
    const ValueId away = step("subtract", {means, step("broadcast", {mean}, "mean", {{"shape", table}})}, "away");
    mean_of(step("add", {vars, step("square", {away}, "between")}, "moments"), old_var);
  }

  // The share of each piece in the batch, [pieces, 1].
  Attrs share_attrs(DType dtype) const {
    std::vector<double> shares;
    for (int64_t piece = 0; piece < pieces_; ++piece)
      shares.push_back(static_cast<double>(first_sample(piece + 1) - first_sample(piece)) /
                       static_cast<double>(analysis_.samples));
    return constant_attrs(Shape{pieces_, 1}, dtype, shares);
  }

  // Makes a whole value of the parts.
  void join(ValueId id) {
    if (!analysis_.sliced[at(id)] || known_[at(id)]) return;
    rewrite_.bind(id, add("concat", parts_[at(id)], {{"axis", int64_t{0}}}, id, graph_.value(id).name));
    known_[at(id)] = true;
  }

  const Graph& graph_;
  const SplitAnalysis analysis_;
  const int64_t pieces_;
  Rewrite rewrite_;
  std::vector<std::vector<ValueId>> parts_;  // per old value: its pieces so far, if it is made in pieces
  std::vector<Temporary> temporary_;
  std::vector<ValueId> sums_;       // per old value: the sum of the parts so far
  std::vector<ValueId> wide_sums_;  // per old value in half precision: the sum before rounding
  ValueId shares_ = kNone;          // the share of each piece in the batch
  std::vector<bool> known_;         // per old value: whether the new graph has the whole value
  int segment_ = 0;
  int64_t piece_ = 0;
  bool failed_ = false;
};

}  // namespace

Rewritten split_batch(Graph joint, int64_t pieces) {
  if (!trains(joint)) return {std::move(joint), 0};
  auto analysis = analyse_split(joint);
  if (!analysis) return {std::move(joint), 0};
  pieces = std::min(pieces, analysis->samples);
  if (pieces < 2) return {std::move(joint), 0};
  std::optional<Graph> split = Splitter(joint, std::move(*analysis), pieces).run();
  if (!split) return {std::move(joint), 0};
  return {std::move(*split), pieces};
}

}  // namespace plimsoll::engine
