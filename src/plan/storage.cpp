#include "plan/storage.h"

#include <algorithm>
#include <cassert>
#include <set>

#include "ops/predicates.h"

namespace plimsoll::engine {
namespace {

// In a fused node an output may be written in-place over an input if no member reads that input after the member that
// computes the output. Each tile is then read before it is written.
std::vector<std::pair<size_t, size_t>> fused_pairs(const Graph& body) {
  std::vector<std::pair<size_t, size_t>> pairs;
  if (body.name == kGroupBody) return pairs;  // its parts run at the same time
  for (size_t o = 0; o < body.outputs.size(); ++o) {
    const Value& out = body.value(body.outputs[o]);
    if (op_def(body.node(out.producer).op).kind != OpKind::kElementwise) continue;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (!(body.type(body.inputs[i]) == out.type)) continue;
      NodeId last_reader = kNone;
      for (size_t n = 0; n < body.nodes.size(); ++n)
        if (std::find(body.nodes[n].inputs.begin(), body.nodes[n].inputs.end(), body.inputs[i]) !=
            body.nodes[n].inputs.end())
          last_reader = static_cast<NodeId>(n);
      if (last_reader <= out.producer) pairs.emplace_back(i, o);
    }
  }
  return pairs;
}

class Assigner {
 public:
  explicit Assigner(const LoweredGraph& lowered) : graph_(lowered.graph), last_use_(graph_.values.size(), kNone) {
    map_.of_value.assign(graph_.values.size(), kNone);
    update_of_.assign(graph_.values.size(), kNone);
    for (const Update& update : graph_.updates) update_of_[static_cast<size_t>(update.value)] = update.persistent;
    find_last_uses();
    for (ValueId id : graph_.inputs) {
      if (!graph_.value(id).persistent && last_use_[static_cast<size_t>(id)] == kNone) continue;
      const int storage = make(id, 0);
      if (graph_.value(id).persistent) map_.storages[static_cast<size_t>(storage)].persistent = id;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) place_outputs(static_cast<int>(n));
  }

  StorageMap take() { return std::move(map_); }

 private:
  void find_last_uses() {
    const auto end = static_cast<int>(graph_.nodes.size()) - 1;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      for (ValueId id : node.outputs)
        last_use_[static_cast<size_t>(id)] = std::max(last_use_[static_cast<size_t>(id)], static_cast<int>(n));
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        int& last = last_use_[static_cast<size_t>(node.inputs[i])];
        last = std::max(last, static_cast<int>(n));
        // A reader of a view reads the viewed value.
        if (i == 0 && is_view(node)) last = std::max(last, last_use_[static_cast<size_t>(node.outputs[0])]);
      }
      for (ValueId id : graph_.outputs)
        if (graph_.value(id).producer == static_cast<NodeId>(n)) extend(id, end);
    }
  }

  // An output is live to the end, and so is the value that it views.
  void extend(ValueId id, int end) {
    last_use_[static_cast<size_t>(id)] = end;
    const NodeId producer = graph_.value(id).producer;
    if (producer != kNone && is_view(graph_.node(producer))) extend(graph_.node(producer).inputs[0], end);
  }

  int make(ValueId id, int first) {
    const auto index = static_cast<int>(map_.storages.size());
    map_.storages.push_back({align_up(std::max<Bytes>(graph_.value(id).bytes(), 1)),
                             first,
                             std::max(first, last_use_[static_cast<size_t>(id)]),
                             kNone,
                             graph_.value(id).space,
                             {}});
    join(id, index);
    return index;
  }

  void join(ValueId id, int storage) {
    Storage& s = map_.storages[static_cast<size_t>(storage)];
    s.values.push_back(id);
    s.last = std::max(s.last, last_use_[static_cast<size_t>(id)]);
    map_.of_value[static_cast<size_t>(id)] = storage;
  }

  void place_outputs(int n) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    if (is_view(node)) {
      join(node.outputs[0], map_.of_value[static_cast<size_t>(node.inputs[0])]);
      return;
    }
    const auto pairs = in_place_pairs(graph_, node);
    std::vector<int> taken;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId out = node.outputs[o];
      if (const ValueId persistent = update_of_[static_cast<size_t>(out)]; persistent != kNone) {
        join(out, map_.of_value[static_cast<size_t>(persistent)]);
        continue;
      }
      int over = kNone;
      for (const auto& [input, output] : pairs) {
        if (output != o) continue;
        const int candidate = map_.of_value[static_cast<size_t>(node.inputs[input])];
        const Storage& s = map_.storages[static_cast<size_t>(candidate)];
        const bool dies = s.persistent == kNone && s.last == n;
        const bool same_bytes = graph_.value(node.inputs[input]).bytes() == graph_.value(out).bytes() &&
                                s.bytes == align_up(graph_.value(out).bytes());
        const bool same_space = s.space == graph_.value(out).space;
        if (dies && same_bytes && same_space && std::find(taken.begin(), taken.end(), candidate) == taken.end() &&
            all_inputs_allow(node, pairs, o, candidate))
          over = candidate;
        if (over != kNone) break;
      }
      if (over == kNone) {
        make(out, n);
      } else {
        taken.push_back(over);
        join(out, over);
      }
    }
  }

  // Other inputs of the node may be views of the same value: each of them must allow that the output is written over
  // it.
  bool all_inputs_allow(const Node& node, const std::vector<std::pair<size_t, size_t>>& pairs, size_t output,
                        int storage) const {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (map_.of_value[static_cast<size_t>(node.inputs[i])] == storage &&
          std::find(pairs.begin(), pairs.end(), std::pair(i, output)) == pairs.end())
        return false;
    return true;
  }

  const Graph& graph_;
  std::vector<int> last_use_;
  std::vector<ValueId> update_of_;
  StorageMap map_;
};

}  // namespace

std::vector<std::pair<size_t, size_t>> in_place_pairs(const Graph&, const Node& node) {
  if (node.body) return fused_pairs(*node.body);
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const InPlace& pair : op_def(node.op).in_place)
    if (pair.input < node.inputs.size() && pair.output < node.outputs.size())
      pairs.emplace_back(pair.input, pair.output);
  return pairs;
}

StorageMap assign_storage(const LoweredGraph& lowered) {
  return Assigner(lowered).take();
}

std::vector<Space> spaces_of(const StorageMap& map) {
  std::set<Space> spaces = {Space::kDevice};
  for (const Storage& storage : map.storages) spaces.insert(storage.space);
  return {spaces.begin(), spaces.end()};
}

std::vector<PackItem> pack_items(const LoweredGraph& lowered, const StorageMap& map, Space space) {
  std::vector<PackItem> items;
  for (const Storage& storage : map.storages)
    if (storage.persistent == kNone && storage.space == space)
      items.push_back({storage.bytes, storage.first, storage.last});
  for (size_t n = 0; n < lowered.kernels.size() && space == Space::kDevice; ++n)
    if (lowered.kernels[n].workspace > 0)
      items.push_back({align_up(lowered.kernels[n].workspace), static_cast<int>(n), static_cast<int>(n)});
  return items;
}

}  // namespace plimsoll::engine
