// Removes transposes. A transpose that moves no element becomes a reshape; a chain of transposes becomes one, or none.
// A transpose is moved through element-wise nodes where that lets it meet its inverse: a model whose layers compute
// channels-last between two transposes each then runs channels-last from its first layer to its last.
//
// Element-wise nodes (and concat and slice, whose axis is only named otherwise) that read each other form a region.
// Each of its tensors could as well be computed in another order of dimensions. A region is turned if that removes more
// bytes of transposes at its border than it adds.
#include "lower/transposes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "ops/op.h"
#include "ops/strided.h"

namespace plimsoll::engine {
namespace {

using Permutation = std::vector<int64_t>;

bool is_identity(const Permutation& perm) {
  return std::is_sorted(perm.begin(), perm.end());
}

// The permutation of transpose(transpose(x, first), second).
Permutation composed(const Permutation& first, const Permutation& second) {
  Permutation both;
  for (int64_t axis : second) both.push_back(first[static_cast<size_t>(axis)]);
  return both;
}

Shape permuted(const Shape& shape, const Permutation& perm) {
  Shape result;
  for (int64_t axis : perm) result.dims.push_back(shape[static_cast<size_t>(axis)]);
  return result;
}

bool keeps_elements_in_place(const Shape& x, const Permutation& perm) {
  const StridedView view = collapsed(transposed_view(x, perm));
  return view.dims.empty() || (view.dims.size() == 1 && view.dims[0].stride == 1);
}

const Node* transpose_behind(const Graph& graph, ValueId id) {
  const NodeId producer = graph.value(id).producer;
  return producer != kNone && graph.node(producer).op == "transpose" ? &graph.node(producer) : nullptr;
}

// Merges chains of transposes and replaces those that move nothing.
Graph merge_transposes(const Graph& graph) {
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node node = graph.nodes[n];
    if (node.op != "transpose") {
      rewrite.copy_node(static_cast<NodeId>(n));
      continue;
    }
    Permutation perm = node.attrs.list("perm");
    ValueId from = node.inputs[0];
    while (const Node* before = transpose_behind(graph, from)) {
      perm = composed(before->attrs.list("perm"), perm);
      from = before->inputs[0];
    }
    const ValueId old = node.outputs[0];
    if (is_identity(perm) && !is_handed_out(graph, old)) {
      rewrite.bind(old, rewrite.to(from));
      continue;
    }
    node.inputs = {rewrite.to(from)};
    if (keeps_elements_in_place(graph.type(from).shape, perm)) {
      node.op = "reshape";
      node.attrs = {{"shape", graph.type(old).shape.dims}};
    } else {
      node.attrs.set("perm", perm);
    }
    node.outputs = {rewrite.add_value(graph.value(old))};
    rewrite.bind(old, node.outputs[0]);
    rewrite.add_node(std::move(node));
  }
  return rewrite.finish();
}

// Whether a node computes each element from the same element of its tensors, whatever the order of their dimensions.
bool is_pointwise(const Graph& graph, const Node& node) {
  // Random numbers depend on the position of an element.
  if (op_def(node.op).kind != OpKind::kElementwise || node.op == "dropout" || node.op.starts_with("random_"))
    return false;
  const Shape& shape = graph.type(node.outputs[0]).shape;
  if (shape.rank() < 2) return false;
  for (ValueId id : node.outputs)
    if (graph.type(id).shape != shape) return false;
  bool full = false;
  for (ValueId id : node.inputs) {
    full = full || graph.type(id).shape == shape;
    if (graph.type(id).shape != shape && graph.type(id).shape.rank() != 0) return false;
  }
  return full;
}

bool moves_along_axis(const Node& node) {
  return node.op == "concat" || node.op == "slice";
}

class Turner {
 public:
  explicit Turner(const Graph& graph)
      : graph_(graph),
        readers_(readers_of(graph)),
        handed_out_(handed_out_values(graph)),
        region_of_(graph.nodes.size(), kNone) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) join(static_cast<NodeId>(n));
    collect();
  }

  // Returns nothing if no region should be turned.
  std::optional<Graph> run() {
    for (const auto& [root, nodes] : regions_)
      if (auto perm = best_turn(nodes)) turned_[root] = std::move(*perm);
    if (turned_.empty()) return std::nullopt;
    Rewrite rewrite(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Permutation* perm = turn_of(static_cast<NodeId>(n));
      if (perm == nullptr)
        rewrite.copy_node(static_cast<NodeId>(n));
      else
        emit(rewrite, static_cast<NodeId>(n), *perm);
    }
    return rewrite.finish();
  }

 private:
  NodeId root_of(NodeId id) const {
    while (region_of_[static_cast<size_t>(id)] != id) id = region_of_[static_cast<size_t>(id)];
    return id;
  }

  void join(NodeId id) {
    const Node& node = graph_.node(id);
    const bool movable = moves_along_axis(node) && graph_.type(node.outputs[0]).shape.rank() > 1;
    if (!movable && !is_pointwise(graph_, node)) return;
    region_of_[static_cast<size_t>(id)] = id;
    for (ValueId in : node.inputs) {
      const NodeId producer = graph_.value(in).producer;
      if (producer == kNone || region_of_[static_cast<size_t>(producer)] == kNone || !is_full(id, in)) continue;
      region_of_[static_cast<size_t>(root_of(producer))] = root_of(id);
    }
  }

  // Whether an input has the dimensions of the node's output; the others are scalars.
  bool is_full(NodeId id, ValueId in) const {
    return moves_along_axis(graph_.node(id)) || graph_.type(in).shape == graph_.type(graph_.node(id).outputs[0]).shape;
  }

  // A tensor of one value has that value in any order.
  const Node* fill_behind(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer != kNone && graph_.node(producer).op == "fill" ? &graph_.node(producer) : nullptr;
  }

  void collect() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (region_of_[n] != kNone) regions_[root_of(static_cast<NodeId>(n))].push_back(static_cast<NodeId>(n));
  }

  bool inside(NodeId id, const std::set<NodeId>& members) const { return members.count(id) != 0; }

  // Bytes of transposes that turning the region by `perm` removes, less those that it adds.
  Bytes gain(const std::vector<NodeId>& nodes, const Permutation& perm) const {
    const std::set<NodeId> members(nodes.begin(), nodes.end());
    const Permutation back = inverse_permutation(perm);
    Bytes sum = 0;
    std::set<ValueId> seen;
    for (NodeId id : nodes) {
      for (ValueId in : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(in).producer;
        if (!is_full(id, in) || (producer != kNone && inside(producer, members)) || !seen.insert(in).second) continue;
        if (fill_behind(in) != nullptr) continue;
        const Node* before = transpose_behind(graph_, in);
        if (before == nullptr || before->attrs.list("perm") != perm) {
          sum -= graph_.value(in).bytes();
          continue;
        }
        const auto& readers = readers_[static_cast<size_t>(in)];
        const bool gone = !handed_out_[static_cast<size_t>(in)] &&
                          std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return inside(r, members); });
        if (gone) sum += graph_.value(in).bytes();
      }
      for (ValueId out : graph_.node(id).outputs) {
        bool stays = handed_out_[static_cast<size_t>(out)];
        for (NodeId reader : readers_[static_cast<size_t>(out)]) {
          const Node& node = graph_.node(reader);
          if (inside(reader, members)) continue;
          if (node.op != "transpose")
            stays = true;
          else if (node.attrs.list("perm") == back)
            sum += graph_.value(out).bytes();
        }
        if (stays) sum -= graph_.value(out).bytes();
      }
    }
    return sum;
  }

  std::optional<Permutation> best_turn(const std::vector<NodeId>& nodes) const {
    std::set<Permutation> candidates;
    for (NodeId id : nodes) {
      for (ValueId in : graph_.node(id).inputs)
        if (const Node* before = transpose_behind(graph_, in); before != nullptr && is_full(id, in))
          candidates.insert(before->attrs.list("perm"));
      for (ValueId out : graph_.node(id).outputs)
        for (NodeId reader : readers_[static_cast<size_t>(out)])
          if (graph_.node(reader).op == "transpose")
            candidates.insert(inverse_permutation(graph_.node(reader).attrs.list("perm")));
    }
    std::optional<Permutation> best;
    Bytes most = 0;
    for (const Permutation& perm : candidates)
      if (const Bytes bytes = gain(nodes, perm); bytes > most) {
        most = bytes;
        best = perm;
      }
    return best;
  }

  const Permutation* turn_of(NodeId id) const {
    if (region_of_[static_cast<size_t>(id)] == kNone) return nullptr;
    const auto found = turned_.find(root_of(id));
    return found == turned_.end() ? nullptr : &found->second;
  }

  ValueId add_transpose(Rewrite& rewrite, const Node& like, ValueId from, const Value& result,
                        const Permutation& perm) {
    Node node{"transpose", {from}, {rewrite.add_value(result)}, {{"perm", perm}}, like.layer, like.stage, nullptr};
    const ValueId made = node.outputs[0];
    rewrite.add_node(std::move(node));
    return made;
  }

  // The turned value, of which the old one is the transpose by `perm`.
  ValueId turned_value(Rewrite& rewrite, const Node& reader, ValueId old, const Permutation& perm) {
    const auto key = std::pair(old, perm);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (const Node* before = transpose_behind(graph_, old); before != nullptr && before->attrs.list("perm") == perm)
      return values_[key] = rewrite.to(before->inputs[0]);
    const Permutation back = inverse_permutation(perm);
    Value value = graph_.value(old);
    value.type.shape = permuted(value.type.shape, back);
    value.persistent = false;
    if (const Node* before = fill_behind(old)) {
      Node fill = *before;
      fill.attrs.set("shape", value.type.shape.dims);
      fill.outputs = {rewrite.add_value(value)};
      values_[key] = fill.outputs[0];
      rewrite.add_node(std::move(fill));
      return values_[key];
    }
    return values_[key] = add_transpose(rewrite, reader, rewrite.to(old), value, back);
  }

  void emit(Rewrite& rewrite, NodeId id, const Permutation& perm) {
    const Node& old = graph_.node(id);
    Node node = old;
    if (moves_along_axis(node)) node.attrs.set("axis", perm[static_cast<size_t>(node.attrs.integer("axis"))]);
    for (ValueId& in : node.inputs) in = is_full(id, in) ? turned_value(rewrite, old, in, perm) : rewrite.to(in);
    for (ValueId& out : node.outputs) {
      Value value = graph_.value(out);
      value.type.shape = permuted(value.type.shape, inverse_permutation(perm));
      const ValueId made = rewrite.add_value(std::move(value));
      values_[std::pair(out, perm)] = made;
      out = made;
    }
    const std::vector<ValueId> made = node.outputs;
    rewrite.add_node(std::move(node));
    // Readers outside the region get the value in its old order; if there are none, this node is dropped.
    for (size_t i = 0; i < made.size(); ++i)
      rewrite.bind(old.outputs[i], add_transpose(rewrite, old, made[i], graph_.value(old.outputs[i]), perm));
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> handed_out_;
  std::vector<NodeId> region_of_;  // as in union-find: the parent of each pointwise node
  std::map<NodeId, std::vector<NodeId>> regions_;
  std::map<NodeId, Permutation> turned_;
  std::map<std::pair<ValueId, Permutation>, ValueId> values_;
};

}  // namespace

Graph remove_transposes(Graph graph) {
  constexpr int kMostRounds = 8;  // each round removes bytes of transposes; more are not needed in practice
  const auto has_transpose = [](const Graph& g) {
    return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& node) { return node.op == "transpose"; });
  };
  if (!has_transpose(graph)) return graph;
  graph = merge_transposes(graph);
  for (int round = 0; round < kMostRounds && has_transpose(graph); ++round) {
    auto turned = Turner(graph).run();
    if (!turned) break;
    graph = merge_transposes(*turned);
  }
  return graph;
}

}  // namespace plimsoll::engine
