#include "report/bands.h"

#include <algorithm>
#include <map>

namespace plimsoll::engine {

std::vector<Band> transient_bands(const PhasePlan& phase, Bytes persistent) {
  std::map<Bytes, std::vector<Band>> at;
  for (size_t v = 0; v < phase.values.size() && v < phase.graph.values.size(); ++v) {
    const Placement& place = phase.values[v];
    const Value& value = phase.graph.values[v];
    if (place.space != Space::kDevice || place.offset == kNone || place.offset < persistent) continue;
    at[place.offset].push_back({place.offset, align_up(std::max<Bytes>(value.bytes(), 1)), place.first, place.last,
                                value.layer, value.name, value.category});
  }
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const PlannedNode& node = phase.nodes[n];
    if (node.workspace_bytes == 0) continue;
    const int index = static_cast<int>(n);
    at[node.workspace_offset].push_back({node.workspace_offset, align_up(node.workspace_bytes), index, index,
                                         phase.graph.nodes[n].layer, "workspace of " + phase.graph.nodes[n].op,
                                         Category::kWorkspace});
  }
  std::vector<Band> bands;
  for (auto& [offset, list] : at) {
    std::stable_sort(list.begin(), list.end(), [](const Band& a, const Band& b) { return a.first < b.first; });
    const size_t begin = bands.size();
    for (Band& band : list) {
      if (bands.size() > begin && band.first <= bands.back().last) {
        bands.back().last = std::max(bands.back().last, band.last);
        bands.back().bytes = std::max(bands.back().bytes, band.bytes);
      } else {
        bands.push_back(std::move(band));
      }
    }
  }
  std::stable_sort(bands.begin(), bands.end(), [](const Band& a, const Band& b) { return a.first < b.first; });
  return bands;
}

std::vector<Bytes> live_bytes(const PhasePlan& phase, Bytes persistent) {
  const auto nodes = static_cast<int>(phase.nodes.size());
  std::vector<Bytes> change(phase.nodes.size() + 1, 0), live(phase.nodes.size(), 0);
  for (const Band& band : transient_bands(phase, persistent)) {
    change[static_cast<size_t>(std::clamp(band.first, 0, nodes))] += band.bytes;
    change[static_cast<size_t>(std::clamp(band.last + 1, 0, nodes))] -= band.bytes;
  }
  Bytes now = persistent;
  for (size_t n = 0; n < live.size(); ++n) live[n] = now += change[n];
  return live;
}

}  // namespace plimsoll::engine
