// Converts a plan to the public Plan type.
#include "api/model_state.h"
#include "base/json_text.h"
#include "report/layers.h"

namespace plimsoll::engine {
namespace {

plimsoll::Effect effect_of(Effect effect) {
  return effect == Effect::kBitwise    ? plimsoll::Effect::kBitwise
         : effect == Effect::kRounding ? plimsoll::Effect::kRounding
                                       : plimsoll::Effect::kTraining;
}

}  // namespace

plimsoll::Plan plan_data(const Run& run) {
  const SearchResult& found = run.found();
  const Plan& plan = found.plan;
  plimsoll::Plan data;
  data.model = plan.model;
  data.device = run.device().name;
  data.precision = plan.precision;
  data.fits = found.fits;
  data.budget_bytes = run.budget().bytes;
  data.peak_bytes = plan.peak_bytes();
  data.arena_bytes = plan.arena_bytes;
  data.overhead_bytes = plan.overhead_at_peak();
  data.data_bytes = plan.data_bytes;
  data.least_bytes = found.least_bytes;
  for (const Weight& weight : run.model().weights()) data.parameters += weight.shape.elements();
  data.effective_batch = plan.batch.effective;
  data.micro_batch = plan.batch.micro;
  data.step_seconds = plan.step_seconds;
  for (const CategoryBytes& entry : categories_at_peak(plan))
    data.categories.push_back({std::string(name_of(entry.category)), entry.bytes});
  for (const PhasePlan& phase : plan.phases)
    data.phases.push_back({to_text(phase.name), phase.samples, phase.arena_bytes, phase.seconds});
  for (const LayerBytes& layer : layer_bytes(run.model(), plan))
    data.layers.push_back({layer.info.name, layer.info.class_name, layer.info.output.dims, layer.info.parameters,
                           layer.weight_bytes, layer.activation_bytes, layer.workspace_bytes});
  for (const LeverUse& lever : plan.levers)
    data.levers.push_back(
        {std::string(lever.name), lever.count, lever.saves_bytes, lever.costs_seconds, effect_of(lever.effect)});
  PlanReport report = run.report();
  report.in_program = true;
  data.text = plan_text(report);
  data.json = json_text(plan_json(report));
  return data;
}

}  // namespace plimsoll::engine
