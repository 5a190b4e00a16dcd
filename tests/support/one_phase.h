// A plan of one phase alone.
#pragma once

#include "plan/plan.h"

namespace plimsoll::testing {

// `place` is plan_phase, or place_phase where the nodes keep their order.
inline Plan one_phase_plan(const std::string& name, int64_t samples, const LoweredGraph& lowered,
                           decltype(plan_phase)& place = plan_phase) {
  Plan plan;
  add_persistent(lowered.graph, plan.persistent);
  plan.persistent_bytes = end_of(plan.persistent);
  plan.phases.push_back(place(name, samples, lowered, plan.persistent));
  plan.arena_bytes = plan.phases[0].arena_bytes;
  plan.beside = memories_beside(plan.phases);
  return plan;
}

}  // namespace plimsoll::testing
