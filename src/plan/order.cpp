#include "plan/order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "ops/predicates.h"
#include "plan/storage.h"

namespace plimsoll::engine {
namespace {

// Dependencies between nodes: producers run before readers, and every reader of a persistent value runs before the node
// that updates it.
struct Dependencies {
  std::vector<std::vector<NodeId>> after;  // for each node: the nodes that depend on it
  std::vector<int> waits;                  // for each node: how many nodes it depends on

  explicit Dependencies(const Graph& graph) : after(graph.nodes.size()), waits(graph.nodes.size(), 0) {
    const auto readers = readers_through_views(graph);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (ValueId in : graph.nodes[n].inputs) link(graph.value(in).producer, static_cast<NodeId>(n));
    for (const Update& update : graph.updates)
      for (NodeId reader : readers[static_cast<size_t>(update.persistent)])
        link(reader, graph.value(update.value).producer);
  }

 private:
  void link(NodeId first, NodeId second) {
    if (first == kNone || second == kNone || first == second) return;
    after[static_cast<size_t>(first)].push_back(second);
    ++waits[static_cast<size_t>(second)];
  }
};

// Computes the bytes by which running a node changes the live set, given the nodes that have run.
class Balance {
 public:
  explicit Balance(const Graph& graph) : graph_(graph), unread_(graph.values.size(), 0) {
    for (const Node& node : graph.nodes)
      for (ValueId in : distinct(node.inputs)) ++unread_[static_cast<size_t>(in)];
    for (ValueId id : graph.outputs) ++unread_[static_cast<size_t>(id)];
    updates_.assign(graph.values.size(), false);
    for (const Update& update : graph.updates) updates_[static_cast<size_t>(update.value)] = true;
  }

  Bytes change(NodeId id) const {
    const Node& node = graph_.node(id);
    if (is_view(node)) return 0;
    Bytes sum = 0;
    for (ValueId out : node.outputs)
      if (!updates_[static_cast<size_t>(out)]) sum += graph_.value(out).bytes();
    for (ValueId in : distinct(node.inputs))
      if (!graph_.value(in).persistent && unread_[static_cast<size_t>(in)] == 1) sum -= graph_.value(in).bytes();
    return sum;
  }

  void run(NodeId id) {
    for (ValueId in : distinct(graph_.node(id).inputs)) --unread_[static_cast<size_t>(in)];
  }

 private:
  static std::set<ValueId> distinct(const std::vector<ValueId>& ids) { return {ids.begin(), ids.end()}; }

  const Graph& graph_;
  std::vector<int> unread_;
  std::vector<bool> updates_;
};

// Schedules all nodes. `choose(ready, balance)` returns the next node out of `ready` (node ids, ascending).
template <typename Choose>
std::vector<NodeId> schedule(const Graph& graph, const Dependencies& dependencies, Choose choose) {
  std::vector<int> waits = dependencies.waits;
  std::set<NodeId> ready;
  for (size_t n = 0; n < waits.size(); ++n)
    if (waits[n] == 0) ready.insert(static_cast<NodeId>(n));
  Balance balance(graph);
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId next = choose(ready, balance);
    ready.erase(next);
    balance.run(next);
    order.push_back(next);
    for (NodeId waiting : dependencies.after[static_cast<size_t>(next)])
      if (--waits[static_cast<size_t>(waiting)] == 0) ready.insert(waiting);
  }
  return order;
}

NodeId least_change(const std::set<NodeId>& ready, const Balance& balance) {
  return *std::min_element(ready.begin(), ready.end(),
                           [&](NodeId a, NodeId b) { return balance.change(a) < balance.change(b); });
}

NodeId freeing_first(const std::set<NodeId>& ready, const Balance& balance) {
  const NodeId least = least_change(ready, balance);
  return balance.change(least) < 0 ? least : *ready.begin();
}

// Numbers the values as the parser of a graph's text does: inputs first, then outputs in the order of their nodes.
LoweredGraph in_order(const LoweredGraph& lowered, const std::vector<NodeId>& order) {
  const Graph& from = lowered.graph;
  LoweredGraph result;
  Graph& graph = result.graph;
  graph.name = from.name;
  graph.values.reserve(from.values.size());
  graph.nodes.reserve(from.nodes.size());
  result.kernels.reserve(lowered.kernels.size());
  std::vector<ValueId> renamed(from.values.size(), kNone);
  const auto add = [&](ValueId old, NodeId producer) {
    renamed[static_cast<size_t>(old)] = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(from.value(old));
    graph.values.back().producer = producer;
    return renamed[static_cast<size_t>(old)];
  };
  for (ValueId id : from.inputs) graph.inputs.push_back(add(id, kNone));
  for (NodeId old : order) {
    Node node = from.node(old);
    for (ValueId& id : node.inputs) id = renamed[static_cast<size_t>(id)];
    for (ValueId& id : node.outputs) id = add(id, static_cast<NodeId>(graph.nodes.size()));
    graph.nodes.push_back(std::move(node));
    result.kernels.push_back(lowered.kernels[static_cast<size_t>(old)]);
  }
  for (ValueId id : from.outputs) graph.outputs.push_back(renamed[static_cast<size_t>(id)]);
  for (const Update& update : from.updates)
    graph.updates.push_back(
        {renamed[static_cast<size_t>(update.persistent)], renamed[static_cast<size_t>(update.value)]});
  return result;
}

}  // namespace

Bytes live_set_of(const LoweredGraph& lowered) {
  return largest_live_set(pack_items(lowered, assign_storage(lowered)));
}

LoweredGraph reorder_for_memory(LoweredGraph lowered) {
  const Dependencies dependencies(lowered.graph);
  std::optional<std::vector<NodeId>> best;  // none: program order
  Bytes least = live_set_of(lowered);
  for (const auto choose : {freeing_first, least_change}) {
    auto order = schedule(lowered.graph, dependencies, choose);
    const Bytes live = live_set_of(in_order(lowered, order));
    if (live >= least) continue;
    least = live;
    best = std::move(order);
  }
  return best ? in_order(lowered, *best) : lowered;
}

}  // namespace plimsoll::engine
