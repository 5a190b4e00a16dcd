#include "plan/recompute_units.h"

#include <algorithm>
#include <numeric>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/fused_body.h"
#include "ops/predicates.h"
#include "plan/storage.h"

namespace plimsoll::engine {
namespace {

constexpr Bytes kShare = 4096;      // values below 1/4096 of the live set are not worth a node
constexpr size_t kMostReaders = 4;  // a value with more readers is computed once for all of them

class UnitFinder {
 public:
  UnitFinder(const LoweredGraph& ordered, const Device& device, RecomputeUnits& result)
      : lowered_(ordered),
        graph_(ordered.graph),
        device_(device),
        result_(result),
        uses_(graph_.values.size()),
        stays_(graph_.values.size(), false),
        updated_at_(graph_.values.size(), RecomputeUnit::kBehind),
        is_overwritten_(graph_.values.size(), false) {
    result_.root = viewed_values(graph_);
    find_live();
    find_uses();
    const Bytes least = result_.peak() / kShare;
    result_.of_value.assign(graph_.values.size(), {0, 0});
    result_.read_by.resize(graph_.values.size());
    for (const ValueId id : graph_.inputs) add_units(id, least);
    for (const Node& node : graph_.nodes)
      if (!is_view(node))
        for (const ValueId id : node.outputs) add_units(id, least);
    find_uses_in_any_case();
    for (size_t u = 0; u < result_.units.size(); ++u)
      for (const ValueId source : result_.units[u].sources)
        result_.read_by[static_cast<size_t>(source)].push_back(static_cast<int>(u));
  }

 private:
  ValueId root(ValueId id) const { return result_.root[static_cast<size_t>(id)]; }
  int last_node() const { return static_cast<int>(graph_.nodes.size()) - 1; }

  void find_live() {
    std::vector<Bytes> change(graph_.nodes.size() + 1, 0);
    result_.starts.assign(graph_.nodes.size(), 0);
    const StorageMap map = assign_storage(lowered_);
    for (const Storage& storage : map.storages)
      for (size_t i = 0; i + 1 < storage.values.size(); ++i)
        if (!is_view(graph_.node(std::max(0, graph_.value(storage.values[i + 1]).producer))))
          is_overwritten_[static_cast<size_t>(root(storage.values[i]))] = true;
    for (const PackItem& item : pack_items(lowered_, map)) {
      change[static_cast<size_t>(item.first)] += item.bytes;
      change[static_cast<size_t>(item.last) + 1] -= item.bytes;
      result_.starts[static_cast<size_t>(item.first)] += item.bytes;
    }
    change.pop_back();
    std::partial_sum(change.begin(), change.end(), change.begin());
    result_.live = std::move(change);
    result_.seconds = lowered_.seconds();
  }

  // Collects the nodes that use each value or a view of it.
  void find_uses() {
    const auto use = [&](ValueId id, int node) {
      std::vector<int>& uses = uses_[static_cast<size_t>(root(id))];
      if (uses.empty() || uses.back() != node) uses.push_back(node);
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (is_view(node)) continue;
      for (const ValueId id : node.inputs) use(id, static_cast<int>(n));
      for (const ValueId id : node.outputs) use(id, static_cast<int>(n));
    }
    for (const ValueId id : graph_.outputs) stays_[static_cast<size_t>(root(id))] = true;
    for (const Update& update : graph_.updates) {
      stays_[static_cast<size_t>(root(update.value))] = true;
      updated_at_[static_cast<size_t>(update.persistent)] = graph_.value(update.value).producer;
    }
  }

  // Whether the node could write a result in the value's place, if the value were not needed any more.
  bool may_overwrite(int n, ValueId id) const {
    const Node& node = graph_.node(n);
    const auto pairs = in_place_pairs(graph_, node);
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const auto& pair) { return root(node.inputs[pair.first]) == id; });
  }

  // Sets used_until. Readers come after producers, so they are known first. A node whose values are all dropped right
  // behind it runs only before their next readers: it is postponed, and so are its uses.
  void find_uses_in_any_case() {
    std::vector<int> postponed(graph_.nodes.size(), 0);
    const auto set_until = [&](ValueId id) {
      int latest = 0;
      const auto [begin, end] = result_.of_value[static_cast<size_t>(id)];
      for (int u = begin; u < end; ++u) {
        RecomputeUnit& unit = result_.units[static_cast<size_t>(u)];
        unit.used_until = kNone;
        for (const int use : uses_[static_cast<size_t>(id)])
          if (use <= unit.after && use != graph_.value(id).producer &&
              postponed[static_cast<size_t>(use)] < unit.before)
            unit.used_until = may_overwrite(use, id) ? use - 1 : use;
        if (unit.droppable && unit.used_until == kNone) latest = std::max(latest, unit.before);
      }
      return latest;
    };
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      int earliest = is_view(node) || node.stage != Stage::kForward ? 0 : RecomputeUnit::kBehind;
      for (const ValueId id : node.outputs) earliest = std::min(earliest, set_until(id));
      postponed[n] = earliest;
    }
    for (const ValueId id : graph_.inputs) set_until(id);
  }

  void add_units(ValueId id, Bytes least) {
    const auto v = static_cast<size_t>(id);
    const Value& value = graph_.values[v];
    const auto first = static_cast<int>(result_.units.size());
    if (value.persistent || value.space != Space::kDevice || stays_[v]) return;
    if (uses_[v].empty()) return;
    RecomputeUnit pattern = pattern_of(id, least);
    if (value.producer == kNone) uses_[v].insert(uses_[v].begin(), 0);  // an input of the graph is there from the start
    const std::vector<int>& uses = uses_[v];
    for (size_t i = 1; i < uses.size(); ++i) {
      if (uses[i] - uses[i - 1] < 2) continue;
      RecomputeUnit unit = pattern;
      unit.after = uses[i - 1];
      unit.before = uses[i];
      unit.droppable = unit.droppable && unit.before <= unit.limit;
      if (unit.droppable && i == 1) unit.spared_seconds = spared(id);
      if (unit.droppable && try_fusing(unit, uses, i)) {
        result_.units.push_back(std::move(unit));
        break;  // behind this wait the value is not stored any more
      }
      result_.units.push_back(std::move(unit));
    }
    if (result_.units.size() == static_cast<size_t>(first) || !result_.units.back().fused) {
      RecomputeUnit unit = std::move(pattern);
      unit.after = uses.back();
      result_.units.push_back(std::move(unit));
    }
    result_.of_value[v] = {first, static_cast<int>(result_.units.size())};
  }

  // What all units of a value have in common.
  RecomputeUnit pattern_of(ValueId id, Bytes least) const {
    const Value& value = graph_.value(id);
    RecomputeUnit unit;
    unit.value = id;
    unit.bytes = align_up(std::max<Bytes>(value.bytes(), 1));
    if (value.producer == kNone || unit.bytes < std::max(least, kAlignment)) return unit;
    const Node remaker = remaker_of(graph_, id);
    if (!can_run_again(remaker)) return unit;
    const auto offer = offer_of(remaker, value.producer);
    if (!offer) return unit;
    unit.droppable = true;
    unit.fusible = remaker.body != nullptr || device_.fuses(graph_, remaker);
    unit.seconds = offer->seconds;
    unit.scratch = align_up(offer->workspace);
    for (const ValueId out : remaker.outputs)
      if (out != id) unit.scratch += align_up(graph_.value(out).bytes());
    for (const ValueId in : remaker.inputs) {
      const ValueId source = root(in);
      if (graph_.value(source).persistent)
        unit.limit = std::min(unit.limit, updated_at_[static_cast<size_t>(source)]);
      else if (std::find(unit.sources.begin(), unit.sources.end(), source) == unit.sources.end())
        unit.sources.push_back(source);
    }
    return unit;
  }

  // The kernel of a node; of an unchanged one as it was chosen.
  std::optional<KernelOffer> offer_of(const Node& node, NodeId original) const {
    if (node.outputs.size() == graph_.node(original).outputs.size())
      return lowered_.kernels[static_cast<size_t>(original)];
    auto offer = device_.offer(graph_, node);
    return offer ? std::optional(std::move(*offer)) : std::nullopt;
  }

  // The seconds that the producer saves if nobody reads the value before it is computed again.
  double spared(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    const Node& node = graph_.node(producer);
    const double whole = lowered_.kernels[static_cast<size_t>(producer)].seconds;
    if (node.outputs.size() == 1) return whole;
    if (!node.body) return 0;
    std::vector<bool> wanted;
    for (const ValueId out : node.outputs) wanted.push_back(out != id);
    const auto offer = device_.offer(graph_, with_outputs(node, wanted));
    return offer ? std::max(0.0, whole - offer->seconds) : 0;
  }

  // Whether all readers behind the wait can compute the value in their own kernels, and whether that costs less.
  bool try_fusing(RecomputeUnit& unit, const std::vector<int>& uses, size_t first) const {
    if (uses.size() - first > kMostReaders) return false;
    const Node remaker = remaker_of(graph_, unit.value);
    double sum = 0;
    for (size_t i = first; i < uses.size(); ++i) {
      const Node& reader = graph_.node(uses[i]);
      if (uses[i] > unit.limit || std::count(reader.inputs.begin(), reader.inputs.end(), unit.value) != 1) return false;
      const auto fused = fused_into_reader(graph_, remaker, unit.value, reader, device_);
      if (!fused) return false;
      const auto offer = device_.offer(graph_, *fused);
      if (!offer) return false;
      sum += offer->seconds - lowered_.kernels[static_cast<size_t>(uses[i])].seconds;
    }
    if (sum > unit.seconds) return false;
    unit.fused = true;
    unit.fused_seconds = sum;
    unit.readers.assign(uses.begin() + static_cast<std::ptrdiff_t>(first), uses.end());
    unit.gone_until = uses.back() + (is_overwritten_[static_cast<size_t>(unit.value)] ? 0 : 1);
    return true;
  }

  const LoweredGraph& lowered_;
  const Graph& graph_;
  const Device& device_;
  RecomputeUnits& result_;
  std::vector<std::vector<int>> uses_;  // per value, in order; through views
  std::vector<bool> stays_;             // alive at the end of the run
  std::vector<int> updated_at_;         // per persistent value
  std::vector<bool> is_overwritten_;    // its last reader writes its own result in its place
};

}  // namespace

RecomputeUnits::RecomputeUnits(const LoweredGraph& ordered, const Device& device) {
  UnitFinder(ordered, device, *this);
}

Bytes RecomputeUnits::peak() const {
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

double RecomputeUnits::least_seconds() const {
  double least = seconds;
  for (const RecomputeUnit& unit : units)
    if (unit.droppable) least += std::min(0.0, unit.least_seconds());
  return least;
}

bool can_run_again(const Node& node) {
  if (node.stage != Stage::kForward || node.queue != Queue::kCompute) return false;
  if (!node.body) return op_def(node.op).recompute != Recompute::kNever;
  return std::all_of(node.body->nodes.begin(), node.body->nodes.end(),
                     [](const Node& member) { return op_def(member.op).recompute != Recompute::kNever; });
}

LoweredGraph without_unread_outputs(Graph graph, const KnownKernels& known, const Device& device) {
  const auto readers = readers_of(graph);
  const auto handed_out = handed_out_values(graph);
  for (Node& node : graph.nodes) {
    std::vector<bool> wanted;
    for (const ValueId id : node.outputs)
      wanted.push_back(!readers[static_cast<size_t>(id)].empty() || handed_out[static_cast<size_t>(id)]);
    node = with_outputs(node, wanted);
  }
  LoweredGraph result;
  result.graph = without_dead_nodes(std::move(graph));
  for (const Node& node : result.graph.nodes) {
    const auto found = known.find(result.graph.value(node.outputs[0]).name);
    if (found != known.end() && found->second.first == node.outputs.size()) {
      result.kernels.push_back(*found->second.second);
      continue;
    }
    auto offer = device.offer(result.graph, node);
    if (!offer) return {};
    result.kernels.push_back(std::move(*offer));
  }
  return result;
}

Node remaker_of(const Graph& graph, ValueId value) {
  const Node& producer = graph.node(graph.value(value).producer);
  std::vector<bool> wanted;
  for (const ValueId out : producer.outputs) wanted.push_back(out == value);
  return with_outputs(producer, wanted);
}

}  // namespace plimsoll::engine
