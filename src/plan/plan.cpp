#include "plan/plan.h"

#include <algorithm>
#include <cassert>
#include <map>

#include "base/checked.h"
#include "plan/order.h"
#include "plan/pack.h"
#include "plan/storage.h"

namespace plimsoll::engine {

BatchPlan batch_of(int64_t effective, const LeverSettings& settings) {
  const int64_t micro = settings.of(kMicroBatch);
  return {effective, micro == 0 ? effective : micro};
}

const PhasePlan* Plan::phase(PhaseName name) const {
  for (const PhasePlan& p : phases)
    if (p.name == name) return &p;
  return nullptr;
}

namespace {

template <typename List>
Bytes bytes_of(const List& beside, Space space) {
  for (const auto& memory : beside)
    if (memory.space == space) return memory.bytes;
  return 0;
}

}  // namespace

Bytes PhasePlan::bytes_in(Space space) const {
  return space == Space::kDevice ? arena_bytes : bytes_of(beside, space);
}

Bytes Plan::bytes_in(Space space) const {
  return space == Space::kDevice ? arena_bytes : bytes_of(beside, space);
}

std::vector<PlanMemory> Plan::memories() const {
  std::vector<PlanMemory> all = {{Space::kDevice, memory, arena_bytes}};
  all.insert(all.end(), beside.begin(), beside.end());
  return all;
}

std::vector<PlanMemory> memories_beside(const std::vector<PhasePlan>& phases) {
  std::map<Space, Bytes> most;
  for (const PhasePlan& phase : phases)
    for (const SpaceBytes& memory : phase.beside) most[memory.space] = std::max(most[memory.space], memory.bytes);
  std::vector<PlanMemory> memories;
  for (const auto& [space, bytes] : most) memories.push_back({space, to_text(space), bytes});
  return memories;
}

BoundCounts counts_of(const std::vector<PhasePlan>& phases) {
  BoundCounts counts;
  for (const PhasePlan& phase : phases) counts += phase.counts();
  return counts;
}

const PersistentSlot* Plan::slot(const std::string& name) const {
  for (const PersistentSlot& s : persistent)
    if (s.name == name) return &s;
  return nullptr;
}

Bytes end_of(const std::vector<PersistentSlot>& slots) {
  return slots.empty() ? 0 : slots.back().offset + slots.back().bytes();
}

namespace {

int rank_of(Category category) {
  switch (category) {
    case Category::kWeights:
      return 0;
    case Category::kOptimizer:
      return 1;
    case Category::kGradients:
      return 3;
    default:
      return 2;
  }
}

}  // namespace

PersistentLayout lay_out(std::span<const Graph* const> graphs, const std::vector<PersistentSlot>& arena) {
  std::map<std::pair<int, std::string>, PersistentSlot> mentioned;
  for (const Graph* graph : graphs)
    for (ValueId id : graph->inputs)
      if (const Value& value = graph->value(id); value.persistent)
        mentioned.try_emplace({rank_of(value.category), value.name},
                              PersistentSlot{value.name, value.type, value.category, value.layer, 0});
  PersistentLayout layout;
  for (const PersistentSlot& slot : arena)
    if (mentioned.erase({rank_of(slot.category), slot.name}) > 0) layout.slots.push_back(slot);
  layout.bytes = end_of(arena);
  for (auto& [order, slot] : mentioned) {
    slot.offset = layout.bytes;
    layout.bytes += slot.bytes();
    layout.slots.push_back(std::move(slot));
  }
  return layout;
}

PhasePlan plan_phase(PhaseName name, int64_t samples, LoweredGraph lowered, const PersistentLayout& persistent) {
  return place_phase(name, samples, reorder_for_memory(std::move(lowered)), persistent);
}

PhasePlan place_phase(PhaseName name, int64_t samples, LoweredGraph lowered, const PersistentLayout& persistent) {
  const StorageMap map = assign_storage(lowered);
  const Bytes base = persistent.bytes;
  std::map<std::string, Bytes> slot_offsets;
  for (const PersistentSlot& slot : persistent.slots) slot_offsets[slot.name] = slot.offset;

  PhasePlan phase;
  phase.name = name;
  phase.samples = samples;
  phase.seconds = lowered.seconds();
  phase.primitives = lowered.primitives();
  phase.values.assign(lowered.graph.values.size(), Placement{kNone, 0, 0});
  for (size_t v = 0; v < phase.values.size(); ++v) phase.values[v].space = lowered.graph.values[v].space;
  for (const KernelOffer& kernel : lowered.kernels)
    phase.nodes.push_back({kernel.kernel, 0, kernel.workspace, kernel.seconds});

  for (const Space space : spaces_of(map)) {
    const std::vector<PackItem> items = pack_items(lowered, map, space);
    const Packing packing = pack(items);
    const Bytes bottom = space == Space::kDevice ? base : 0;  // persistent values are in the device's memory
    size_t item = 0;
    for (const Storage& storage : map.storages) {
      if (storage.space != space) continue;
      const Bytes offset = storage.persistent == kNone ? bottom + packing.offsets[item++]
                                                       : slot_offsets.at(lowered.graph.value(storage.persistent).name);
      for (ValueId id : storage.values)
        phase.values[static_cast<size_t>(id)] = {offset, storage.first, storage.last, space};
    }
    if (space != Space::kDevice) {
      phase.beside.push_back({space, packing.height});
      continue;
    }
    for (PlannedNode& node : phase.nodes)
      if (node.workspace_bytes > 0) node.workspace_offset = base + packing.offsets[item++];
    assert(item == items.size());
    phase.arena_bytes = base + packing.height;
    phase.live_set_bytes = base + largest_live_set(items, &phase.peak_node);
  }
  phase.graph = std::move(lowered.graph);
  return phase;
}

const PhasePlan* peak_phase(const Plan& plan) {
  const PhasePlan* peak = nullptr;
  for (const PhasePlan& phase : plan.phases)
    if (peak == nullptr || phase.arena_bytes > peak->arena_bytes) peak = &phase;
  return peak;
}

std::vector<CategoryBytes> categories_at_peak(const Plan& plan) {
  std::map<Category, Bytes> sums;
  for (Category category : {Category::kWeights, Category::kGradients, Category::kOptimizer, Category::kActivations,
                            Category::kInputs, Category::kWorkspace, Category::kTemporaries})
    sums[category] = 0;
  // The validator calls this also for plans from files, so a sum that overflows becomes INT64_MAX.
  const auto add = [](Bytes& sum, Bytes bytes) { sum = checked_add(sum, bytes).value_or(INT64_MAX); };
  for (const PersistentSlot& slot : plan.persistent) add(sums[slot.category], slot.bytes());
  const PhasePlan* phase = peak_phase(plan);
  if (phase != nullptr && !phase->nodes.empty()) {
    // Values that share a place count once, in the category of the first one.
    std::map<Bytes, std::pair<Bytes, Category>> at;
    for (size_t v = 0; v < phase->values.size(); ++v) {
      const Placement& place = phase->values[v];
      const Value& value = phase->graph.values[v];
      if (place.space != Space::kDevice || place.offset < plan.persistent_bytes || phase->peak_node < place.first ||
          phase->peak_node > place.last)
        continue;
      at.emplace(place.offset, std::make_pair(align_up(std::max<Bytes>(value.bytes(), 1)), value.category));
    }
    for (const auto& [offset, entry] : at) add(sums[entry.second], entry.first);
    add(sums[Category::kWorkspace], align_up(phase->nodes[static_cast<size_t>(phase->peak_node)].workspace_bytes));
  }
  std::vector<CategoryBytes> list;
  Bytes total = 0;
  for (const auto& [category, bytes] : sums) {
    list.push_back({category, bytes});
    add(total, bytes);
  }
  list.push_back({Category::kFragmentation, plan.arena_bytes - total});
  return list;
}

}  // namespace plimsoll::engine
