#include "report/picture.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace plimsoll::engine {
namespace {

int64_t runs_of(const Plan& plan, const PhasePlan& phase) {
  return phase.name == PhaseName{PhaseKind::kAccumulate, false}
             ? plan.batch.effective / std::max<int64_t>(1, plan.batch.micro)
             : 1;
}

// The phases that a whole training step runs, in order.
std::vector<const PhasePlan*> phases_of_step(const Plan& plan) {
  std::vector<const PhasePlan*> list;
  for (const PhaseName name : {PhaseName{PhaseKind::kTrain, false}, PhaseName{PhaseKind::kBegin, false},
                               PhaseName{PhaseKind::kAccumulate, false}, PhaseName{PhaseKind::kApply, false}})
    if (const PhasePlan* phase = plan.phase(name)) list.push_back(phase);
  if (list.empty() && !plan.phases.empty()) list.push_back(&plan.phases.front());
  return list;
}

class Painter {
 public:
  explicit Painter(const Plan& plan) : plan_(plan) {
    for (const PhasePlan* phase : phases_of_step(plan)) add_phase(*phase);
    const int end = std::max(0, static_cast<int>(picture_.steps.size()) - 1);
    for (const PersistentSlot& slot : plan.persistent)
      picture_.values.push_back({slot.name, slot.layer, slot.category, 0, end, slot.offset, slot.bytes()});
    picture_.arena_bytes = plan.arena_bytes;
    for (const PictureValue& value : picture_.values)
      for (int at = value.first; at <= value.last && at < static_cast<int>(picture_.steps.size()); ++at)
        picture_.steps[static_cast<size_t>(at)].live[static_cast<size_t>(value.category)] += value.bytes;
    for (size_t i = 0; i < picture_.steps.size(); ++i)
      if (picture_.steps[i].total() > picture_.steps[picture_.peak].total()) picture_.peak = i;
  }

  Picture take() { return std::move(picture_); }

 private:
  void add_phase(const PhasePlan& phase) {
    const auto base = static_cast<int>(picture_.steps.size());
    const auto nodes = static_cast<int>(phase.nodes.size());
    if (nodes == 0) return;
    for (int n = 0; n < nodes; ++n) {
      const Node& node = phase.graph.nodes[static_cast<size_t>(n)];
      const PlannedNode& planned = phase.nodes[static_cast<size_t>(n)];
      picture_.steps.push_back({node.op, node.layer, picture_.phases.size(), node.stage, planned.seconds, {}});
      if (planned.workspace_bytes > 0)
        picture_.values.push_back({node.op + " workspace", node.layer, Category::kWorkspace, base + n, base + n,
                                   planned.workspace_offset, align_up(planned.workspace_bytes)});
    }
    add_values(phase, base);
    picture_.phases.push_back({to_text(phase.name), runs_of(plan_, phase), base, base + nodes - 1});
  }

  // Values that share a place (views, results written over an input) are one range of the arena.
  void add_values(const PhasePlan& phase, int base) {
    std::set<std::tuple<Bytes, int, int>> seen;
    for (size_t v = 0; v < phase.values.size(); ++v) {
      const Placement& place = phase.values[v];
      const Value& value = phase.graph.values[v];
      if (place.space != Space::kDevice || place.offset < plan_.persistent_bytes) continue;
      if (!seen.emplace(place.offset, place.first, place.last).second) continue;
      picture_.values.push_back({value.name, value.layer, value.category, base + place.first, base + place.last,
                                 place.offset, align_up(std::max<Bytes>(value.bytes(), 1))});
    }
  }

  const Plan& plan_;
  Picture picture_;
};

}  // namespace

Bytes PictureStep::total() const {
  return std::accumulate(live.begin(), live.end(), Bytes{0});
}

Picture picture_of(const Plan& plan) {
  return Painter(plan).take();
}

}  // namespace plimsoll::engine
