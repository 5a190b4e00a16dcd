// Plans phases for batch sizes that a plan does not have.
#include <fmt/format.h>

#include <algorithm>

#include "search/compile.h"

namespace plimsoll::engine {
namespace {

// Tries the plan's own settings first. A phase that fits without the kOrderedGraph levers does not use them, here as in
// a plan. Then tries stronger settings of the levers that the plan uses, because a smaller batch may still need a
// larger workspace.
std::vector<LeverSettings> tail_settings(const SearchRequest& request, const Plan& plan) {
  std::vector<LeverSettings> list = {plan.settings};
  for (const Lever& lever : *request.levers) {
    const int64_t setting = plan.settings.of(lever.name);
    const bool ordered = lever.stage == LeverStage::kOrderedGraph;
    if (setting == 0 || (!ordered && lever.stage != LeverStage::kJointGraph)) continue;
    std::vector<LeverSettings> longer;
    for (const LeverSettings& one : list) {
      if (ordered) longer.push_back(one.with(lever.name, 0));
      for (const int64_t value : lever.values)
        if (value >= setting) longer.push_back(one.with(lever.name, value));
    }
    list = std::move(longer);
  }
  return list;
}

bool fits(const PhasePlan& phase, const Plan& plan) {
  return phase.arena_bytes <= plan.arena_bytes &&
         std::all_of(phase.beside.begin(), phase.beside.end(),
                     [&](const SpaceBytes& memory) { return memory.bytes <= plan.bytes_in(memory.space); });
}

Result<Phase> tail_phase(const SearchRequest& request, PhaseKind kind, int64_t samples) {
  switch (kind) {
    case PhaseKind::kTrain:
      return train_phase(*request.model, samples, request.graph, true);
    case PhaseKind::kAccumulate:
      return accumulate_phase(*request.model, samples, request.graph, true);
    case PhaseKind::kEvaluate:
      return evaluate_phase(*request.model, samples, request.graph, true);
    case PhaseKind::kPredict:
      return predict_phase(*request.model, samples, request.graph, true);
    case PhaseKind::kBegin:
    case PhaseKind::kApply:
      break;
  }
  return fail(ErrorCode::kInternal, fmt::format("a phase {} reads no samples", to_text(PhaseName{kind})));
}

}  // namespace

Result<PhasePlan> plan_tail(const SearchRequest& request, const Plan& plan, PhaseKind kind, int64_t samples) {
  PLIMSOLL_ASSIGN(const Phase phase, tail_phase(request, kind, samples));
  Bytes needed = 0;
  for (const LeverSettings& settings : tail_settings(request, plan)) {
    PLIMSOLL_ASSIGN(auto planned, Compiler::compile_phase(request, settings, phase, plan.layout()));
    if (!planned) continue;
    if (fits(*planned, plan)) return std::move(*planned);
    needed = planned->arena_bytes;
  }
  return fail(ErrorCode::kDoesNotFit, fmt::format("a batch of {} samples needs an arena of {}, but the plan has {}",
                                                  samples, format_bytes(needed), format_bytes(plan.arena_bytes)));
}

}  // namespace plimsoll::engine
