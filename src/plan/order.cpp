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

// The nodes that can run next, and by how many bytes each of them would change the live set. A change is computed once,
// and again only when its node becomes the last reader of a value.
class Ready {
 public:
  explicit Ready(const Graph& graph)
      : graph_(graph),
        inputs_(graph.nodes.size()),
        readers_(graph.values.size()),
        unread_(graph.values.size(), 0),
        change_(graph.nodes.size(), 0),
        is_view_(graph.nodes.size(), false) {
    std::vector<bool> updates(graph.values.size(), false);
    for (const Update& update : graph.updates) updates[static_cast<size_t>(update.value)] = true;
    for (ValueId id : graph.outputs) ++unread_[static_cast<size_t>(id)];
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      is_view_[n] = is_view(node);
      inputs_[n] = node.inputs;
      std::sort(inputs_[n].begin(), inputs_[n].end());
      inputs_[n].erase(std::unique(inputs_[n].begin(), inputs_[n].end()), inputs_[n].end());
      for (ValueId in : inputs_[n]) {
        readers_[static_cast<size_t>(in)].push_back(static_cast<NodeId>(n));
        ++unread_[static_cast<size_t>(in)];
      }
      for (ValueId out : node.outputs)
        if (!is_view_[n] && !updates[static_cast<size_t>(out)]) change_[n] += graph.value(out).bytes();
    }
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (unread_[v] == 1) free_by_last_reader(v);
  }

  bool empty() const { return by_id_.empty(); }
  NodeId first() const { return *by_id_.begin(); }
  // The node with the least change, the first of equals, and its change.
  NodeId least() const { return by_change_.begin()->second; }
  Bytes least_change() const { return by_change_.begin()->first; }

  void add(NodeId id) {
    by_id_.insert(id);
    by_change_.emplace(change_[static_cast<size_t>(id)], id);
  }

  void run(NodeId id) {
    by_id_.erase(id);
    by_change_.erase({change_[static_cast<size_t>(id)], id});
    for (ValueId in : inputs_[static_cast<size_t>(id)]) {
      std::erase(readers_[static_cast<size_t>(in)], id);
      if (--unread_[static_cast<size_t>(in)] == 1) free_by_last_reader(static_cast<size_t>(in));
    }
  }

 private:
  void free_by_last_reader(size_t v) {
    if (graph_.values[v].persistent || readers_[v].empty()) return;  // the last reader may be the graph's output
    const NodeId id = readers_[v].front();
    const auto n = static_cast<size_t>(id);
    if (is_view_[n]) return;
    const bool ready = by_change_.erase({change_[n], id}) > 0;
    change_[n] -= graph_.values[v].bytes();
    if (ready) by_change_.emplace(change_[n], id);
  }

  const Graph& graph_;
  std::vector<std::vector<ValueId>> inputs_;  // per node, each once
  std::vector<std::vector<NodeId>> readers_;  // per value: nodes that have not run
  std::vector<int> unread_;                   // per value: readers_, and the graph's outputs
  std::vector<Bytes> change_;                 // per node
  std::vector<bool> is_view_;
  std::set<NodeId> by_id_;
  std::set<std::pair<Bytes, NodeId>> by_change_;
};

// Schedules all nodes. `choose(ready)` returns the next node.
template <typename Choose>
std::vector<NodeId> schedule(const Graph& graph, const Dependencies& dependencies, Choose choose) {
  std::vector<int> waits = dependencies.waits;
  Ready ready(graph);
  for (size_t n = 0; n < waits.size(); ++n)
    if (waits[n] == 0) ready.add(static_cast<NodeId>(n));
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId next = choose(ready);
    ready.run(next);
    order.push_back(next);
    for (NodeId waiting : dependencies.after[static_cast<size_t>(next)])
      if (--waits[static_cast<size_t>(waiting)] == 0) ready.add(waiting);
  }
  return order;
}

NodeId least_change(const Ready& ready) {
  return ready.least();
}

NodeId freeing_first(const Ready& ready) {
  return ready.least_change() < 0 ? ready.least() : ready.first();
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

// What an order keeps alive. Of two orders with the same largest live set the one with the smaller sum is better: it
// frees bytes earlier, and levers that shrink the largest live set meet fewer bytes elsewhere.
struct Liveness {
  Bytes largest = 0;  // live set
  double sum = 0;     // of the live sets of all nodes

  auto operator<=>(const Liveness&) const = default;
};

Liveness liveness_of(const LoweredGraph& lowered) {
  const std::vector<PackItem> items = pack_items(lowered, assign_storage(lowered));
  Liveness live{largest_live_set(items)};
  for (const PackItem& item : items) live.sum += static_cast<double>(item.bytes) * (item.last - item.first + 1);
  return live;
}

}  // namespace

Bytes live_set_of(const LoweredGraph& lowered) {
  return liveness_of(lowered).largest;
}

LoweredGraph reorder_for_memory(LoweredGraph lowered) {
  const Dependencies dependencies(lowered.graph);
  std::optional<std::vector<NodeId>> best;  // none: program order
  Liveness least = liveness_of(lowered);
  for (const auto choose : {freeing_first, least_change}) {
    auto order = schedule(lowered.graph, dependencies, choose);
    const Liveness live = liveness_of(in_order(lowered, order));
    if (!(live < least)) continue;
    least = live;
    best = std::move(order);
  }
  return best ? in_order(lowered, *best) : lowered;
}

}  // namespace plimsoll::engine
