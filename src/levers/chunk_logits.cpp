#include "levers/chunk_logits.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "ops/op.h"
#include "ops/split.h"

namespace plimsoll::engine {
namespace {

size_t at(int32_t id) {
  return static_cast<size_t>(id);
}

// What a value is to the nodes that run per chunk.
enum class Role : uint8_t {
  kOutside,  // it exists as a whole
  kLogits,   // [..., vocabulary], in chunks only
  kRows,     // one row per row of the logits; made in chunks and joined
  kSum,      // the sum of what the chunks compute
};

// The nodes that run per chunk: the product and everything that reads what has its shape.
struct Region {
  int64_t rows = 0, vocabulary = 0;
  std::vector<std::optional<SplitForm>> forms;  // per node; none: it runs once
  std::vector<Role> roles;                      // per value
};

bool is_large_product(const Graph& graph, const Node& node) {
  if (node.op != "matmul" || node.attrs.flag("transpose_a") || node.stage != Stage::kForward) return false;
  const Shape& shape = graph.type(node.outputs[0]).shape;
  const NodeId of_rows = graph.value(node.inputs[0]).producer;
  const bool is_chunk = of_rows != kNone && graph.node(of_rows).op == "slice";
  return shape.rank() == 2 && shape[1] >= kLeastVocabulary && shape[0] > 1 && !is_chunk;
}

class RegionFinder {
 public:
  RegionFinder(const Graph& graph, NodeId product) : graph_(graph), product_(product) {
    const Shape& shape = graph.type(graph.node(product).outputs[0]).shape;
    region_.rows = shape[0], region_.vocabulary = shape[1];
    region_.forms.resize(graph.nodes.size());
    region_.roles.assign(graph.values.size(), Role::kOutside);
  }

  std::optional<Region> find() {
    for (size_t n = at(product_); n < graph_.nodes.size(); ++n)
      if ((static_cast<NodeId>(n) == product_ || reads_logits(graph_.nodes[n])) && !take(static_cast<NodeId>(n)))
        return std::nullopt;
    const std::vector<bool> handed_out = handed_out_values(graph_);
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (role(static_cast<ValueId>(v)) == Role::kLogits && handed_out[v]) return std::nullopt;
    if (!has_results() || comes_back()) return std::nullopt;
    return std::move(region_);
  }

 private:
  Role role(ValueId id) const { return region_.roles[at(id)]; }
  bool reads_logits(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return role(id) == Role::kLogits; });
  }
  bool has_results() const {
    return std::any_of(region_.roles.begin(), region_.roles.end(),
                       [](Role role) { return role == Role::kRows || role == Role::kSum; });
  }

  bool has_logits_shape(ValueId id) const {
    const Shape& shape = graph_.type(id).shape;
    return shape.rank() >= 2 && shape.back() == region_.vocabulary &&
           shape.elements() == region_.rows * region_.vocabulary;
  }
  // A value with one row per row of the logits, and smaller than they are.
  bool has_rows(ValueId id) const {
    const Shape& shape = graph_.type(id).shape;
    return (shape.rank() == 1 || shape.rank() == 2) && shape[0] == region_.rows && !has_logits_shape(id);
  }

  // Reshapes of logits keep each row; in chunks, all logits are [rows, vocabulary].
  bool take(NodeId n) {
    const Node& node = graph_.node(n);
    const std::vector<SplitForm> forms =
        node.op == "reshape" ? std::vector<SplitForm>{{"s", "s"}} : split_forms(graph_, node);
    for (const SplitForm& form : forms) {
      if (!fits(node, form)) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i)
        region_.roles[at(node.outputs[i])] = role_of_output(node, form, i);
      region_.forms[at(n)] = form;
      return true;
    }
    return false;
  }

  Role role_of_output(const Node& node, const SplitForm& form, size_t i) const {
    const ValueId id = node.outputs[i];
    if (letter_of(form.outputs, i) == '+') return Role::kSum;
    return has_logits_shape(id) ? Role::kLogits : has_rows(id) ? Role::kRows : Role::kOutside;
  }

  bool fits(const Node& node, const SplitForm& form) const {
    if (!form.rows.empty() || !form.rows_before.empty() || !form.rows_of_batch.empty()) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const bool cut = letter_of(form.inputs, i) == 's', in_region = role(id) != Role::kOutside;
      if (cut ? role(id) == Role::kSum || (!in_region && !has_rows(id)) : in_region) return false;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const char letter = letter_of(form.outputs, i);
      if (letter != 's' && letter != '+') return false;
      if (role_of_output(node, form, i) == Role::kOutside) return false;
      if (node.op == "reshape" && role_of_output(node, form, i) != Role::kLogits) return false;
    }
    return true;
  }

  // Whether a node of the region needs what other nodes compute from the region's results as a whole.
  bool comes_back() const {
    std::vector<bool> after(graph_.values.size(), false);
    for (size_t n = at(product_); n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const bool inside = region_.forms[n].has_value();
      const bool reads_after =
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return after[at(id)]; });
      if (inside && reads_after) return true;
      const bool reads_result = !inside && std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
        return role(id) == Role::kRows || role(id) == Role::kSum;
      });
      if (reads_after || reads_result)
        for (const ValueId id : node.outputs) after[at(id)] = true;
    }
    return false;
  }

  const Graph& graph_;
  const NodeId product_;
  Region region_;
};

class Chunker {
 public:
  Chunker(const Graph& graph, Region region, int64_t chunks)
      : graph_(graph),
        region_(std::move(region)),
        chunks_(chunks),
        rewrite_(graph),
        done_(graph.nodes.size(), false),
        chunk_(graph.values.size(), kNone),
        parts_(graph.values.size()),
        sums_(graph.values.size(), kNone) {}

  // Returns none if a chunk of a node has another type than its op infers.
  std::optional<Graph> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) compute(static_cast<NodeId>(n));
    if (failed_) return std::nullopt;
    return rewrite_.finish();
  }

 private:
  void compute(NodeId n) {
    if (done_[at(n)]) return;
    if (region_.forms[at(n)]) return add_region();
    done_[at(n)] = true;
    for (const ValueId id : graph_.node(n).inputs) need(id);
    rewrite_.copy_node(n);
  }
  void need(ValueId id) {
    if (const NodeId producer = graph_.value(id).producer; producer != kNone) compute(producer);
  }

  // All chunks follow one another at the place of the first node. What they read is computed before them.
  void add_region() {
    std::vector<NodeId> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (region_.forms[n]) nodes.push_back(static_cast<NodeId>(n)), done_[n] = true;
    for (const NodeId n : nodes)
      for (const ValueId id : graph_.node(n).inputs)
        if (region_.roles[at(id)] == Role::kOutside) need(id);
    for (index_ = 0; index_ < chunks_; ++index_) {
      chunk_.assign(chunk_.size(), kNone);
      for (const NodeId n : nodes) add_chunk(n);
    }
    for (size_t v = 0; v < parts_.size(); ++v)
      if (!parts_[v].empty()) join(static_cast<ValueId>(v));
  }

  int64_t first_row(int64_t chunk) const { return region_.rows * chunk / chunks_; }
  int64_t rows_of_chunk() const { return first_row(index_ + 1) - first_row(index_); }
  std::string name_of_chunk(ValueId id) const { return fmt::format("{}/{}", graph_.value(id).name, index_ + 1); }

  Shape shape_of_chunk(ValueId id) const {
    if (region_.roles[at(id)] == Role::kLogits) return Shape{rows_of_chunk(), region_.vocabulary};
    Shape shape = graph_.type(id).shape;
    if (region_.roles[at(id)] != Role::kSum) shape.dims[0] = rows_of_chunk();
    return shape;
  }

  // Adds a node that the old graph does not have, for the value `of`.
  ValueId add(const char* op, std::vector<ValueId> inputs, Attrs attrs, ValueId of, TensorType type, std::string name) {
    Value value = graph_.value(of);
    const NodeId producer = value.producer;
    Node node{op, std::move(inputs), {}, std::move(attrs), value.layer, Stage::kForward, nullptr};
    if (producer != kNone) node.stage = graph_.node(producer).stage;
    value.type = std::move(type);
    value.persistent = false;
    value.name = std::move(name);
    const ValueId id = rewrite_.add_value(std::move(value));
    node.outputs = {id};
    rewrite_.add_node(std::move(node));
    return id;
  }

  ValueId input_of_chunk(ValueId id) {
    ValueId& made = chunk_[at(id)];
    if (made == kNone)
      made = add("slice", {rewrite_.to(id)},
                 {{"axis", int64_t{0}}, {"begin", first_row(index_)}, {"size", rows_of_chunk()}}, id,
                 {graph_.type(id).dtype, shape_of_chunk(id)}, name_of_chunk(id));
    return made;
  }

  void add_chunk(NodeId n) {
    const SplitForm& form = *region_.forms[at(n)];
    Node node = graph_.node(n);
    if (node.op == "reshape") {
      chunk_[at(node.outputs[0])] = input_of_chunk(node.inputs[0]);
      return;
    }
    std::vector<TensorType> types;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      id = letter_of(form.inputs, i) == 's' ? input_of_chunk(id) : rewrite_.to(id);
      types.push_back(rewrite_.graph().type(id));
    }
    const auto inferred = op_def(node.op).infer(types, node.attrs);
    const std::vector<ValueId> old = node.outputs;
    for (size_t i = 0; i < old.size(); ++i) {
      Value value = graph_.value(old[i]);
      value.type.shape = shape_of_chunk(old[i]);
      value.name = name_of_chunk(old[i]);
      failed_ = failed_ || !inferred || i >= inferred->size() || (*inferred)[i] != value.type;
      node.outputs[i] = rewrite_.add_value(std::move(value));
    }
    const std::vector<ValueId> made = node.outputs;
    rewrite_.add_node(std::move(node));
    for (size_t i = 0; i < old.size(); ++i) keep(old[i], made[i]);
  }

  void keep(ValueId old, ValueId made) {
    if (region_.roles[at(old)] == Role::kSum) return add_to_sum(old, made);
    chunk_[at(old)] = made;
    if (region_.roles[at(old)] == Role::kRows) parts_[at(old)].push_back(made);
  }

  // Parts in half precision are added in f32, and the sum is rounded once.
  void add_to_sum(ValueId old, ValueId part) {
    const TensorType type = graph_.type(old), sum_type{wide(type.dtype), type.shape};
    const bool half = sum_type != type;
    const auto cast = [&](ValueId from, const TensorType& to, std::string name) {
      return add("cast", {from}, {{"dtype", std::string(name_of(to.dtype))}}, old, to, std::move(name));
    };
    if (half) part = cast(part, sum_type, name_of_chunk(old) + "/wide");
    ValueId& sum = sums_[at(old)];
    sum = sum == kNone ? part : add("add", {sum, part}, {}, old, sum_type, name_of_chunk(old) + "/sum");
    if (index_ + 1 == chunks_) rewrite_.bind(old, half ? cast(sum, type, graph_.value(old).name) : sum);
  }

  void join(ValueId id) {
    rewrite_.bind(id,
                  add("concat", parts_[at(id)], {{"axis", int64_t{0}}}, id, graph_.type(id), graph_.value(id).name));
  }

  const Graph& graph_;
  const Region region_;
  const int64_t chunks_;
  Rewrite rewrite_;
  std::vector<bool> done_;
  std::vector<ValueId> chunk_;               // per old value: its part of the present chunk
  std::vector<std::vector<ValueId>> parts_;  // per old value of role kRows: its chunks so far
  std::vector<ValueId> sums_;                // per old value of role kSum: the sum so far
  int64_t index_ = 0;
  bool failed_ = false;
};

// Chunks the first product from node `from` on that can be chunked.
std::optional<Rewritten> chunk_next(const Graph& graph, int64_t chunks, size_t& from) {
  for (; from < graph.nodes.size(); ++from) {
    if (!is_large_product(graph, graph.nodes[from])) continue;
    auto region = RegionFinder(graph, static_cast<NodeId>(from)).find();
    if (!region) continue;
    const int64_t count = std::min(chunks, region->rows);
    if (auto made = Chunker(graph, std::move(*region), count).run()) return Rewritten{std::move(*made), count};
  }
  return std::nullopt;
}

}  // namespace

Rewritten chunk_logits(Graph joint, int64_t chunks) {
  Rewritten result{std::move(joint), 0};
  size_t from = 0;
  while (auto made = chunk_next(result.graph, chunks, from)) {
    made->count = std::max(made->count, result.count);
    result = std::move(*made);
  }
  return result;
}

}  // namespace plimsoll::engine
