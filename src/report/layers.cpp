#include "report/layers.h"

#include <algorithm>
#include <map>

namespace plimsoll::engine {
namespace {

const PhasePlan* widest_phase(const Plan& plan) {
  for (const PhaseKind kind : {PhaseKind::kTrain, PhaseKind::kAccumulate, PhaseKind::kEvaluate, PhaseKind::kPredict})
    if (const PhasePlan* phase = plan.phase(kind)) return phase;
  return nullptr;
}

}  // namespace

std::vector<LayerBytes> layer_bytes(const Model& model, const Plan& plan) {
  std::map<std::string, LayerBytes> by_name;
  for (const LayerInfo& info : model.layers()) by_name[info.name].info = info;
  for (const PersistentSlot& slot : plan.persistent)
    if (slot.category == Category::kWeights && by_name.count(slot.layer) != 0)
      by_name[slot.layer].weight_bytes += slot.type.bytes();
  if (const PhasePlan* phase = widest_phase(plan)) {
    for (size_t v = 0; v < phase->graph.values.size(); ++v) {
      const Value& value = phase->graph.values[v];
      if (value.producer == kNone || value.category != Category::kActivations || by_name.count(value.layer) == 0)
        continue;
      if (phase->graph.node(value.producer).op == "reshape") continue;
      by_name[value.layer].activation_bytes += value.bytes();
    }
    for (size_t n = 0; n < phase->nodes.size(); ++n) {
      const auto found = by_name.find(phase->graph.nodes[n].layer);
      if (found != by_name.end())
        found->second.workspace_bytes = std::max(found->second.workspace_bytes, phase->nodes[n].workspace_bytes);
    }
  }
  std::vector<LayerBytes> list;
  for (const LayerInfo& info : model.layers()) list.push_back(by_name[info.name]);
  return list;
}

std::vector<PeakValue> peak_values(const Plan& plan) {
  const PhasePlan* phase = peak_phase(plan);
  std::vector<PeakValue> list;
  if (phase == nullptr || phase->nodes.empty()) return list;
  std::map<Bytes, PeakValue> at;
  for (size_t v = 0; v < phase->values.size(); ++v) {
    const Placement& place = phase->values[v];
    if (place.space != Space::kDevice || place.offset < 0) continue;
    const bool alive =
        place.offset < plan.persistent_bytes || (place.first <= phase->peak_node && phase->peak_node <= place.last);
    if (alive) at.emplace(place.offset, PeakValue{&phase->graph.values[v], phase->graph.values[v].bytes()});
  }
  for (const auto& [offset, value] : at) list.push_back(value);
  std::stable_sort(list.begin(), list.end(), [](const PeakValue& a, const PeakValue& b) { return a.bytes > b.bytes; });
  return list;
}

std::vector<PeakLayer> peak_layers(const Plan& plan) {
  std::map<std::pair<std::string, Category>, Bytes> sums;
  for (const PeakValue& value : peak_values(plan))
    sums[{value.value->layer.empty() ? value.value->name : value.value->layer, value.value->category}] += value.bytes;
  std::vector<PeakLayer> list;
  for (const auto& [key, bytes] : sums) list.push_back({key.first, key.second, bytes});
  std::stable_sort(list.begin(), list.end(), [](const PeakLayer& a, const PeakLayer& b) { return a.bytes > b.bytes; });
  return list;
}

}  // namespace plimsoll::engine
