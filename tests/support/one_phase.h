// A plan with a single phase.
#pragma once

#include "plan/plan.h"

namespace plimsoll::engine::testing {

// `place` is plan_phase, or place_phase to keep the order of the nodes.
inline Plan one_phase_plan(PhaseKind kind, int64_t samples, const LoweredGraph& lowered,
                           decltype(plan_phase)& place = plan_phase) {
  Plan plan;
  const Graph* const graph = &lowered.graph;
  const PersistentLayout layout = lay_out({&graph, 1});
  plan.persistent = layout.slots;
  plan.persistent_bytes = layout.bytes;
  plan.phases.push_back(place({kind}, samples, lowered, layout));
  plan.arena_bytes = plan.phases[0].arena_bytes;
  plan.beside = memories_beside(plan.phases);
  return plan;
}

}  // namespace plimsoll::engine::testing
