#include <fmt/format.h>

#include "base/json.h"
#include "report/layers.h"
#include "report/plan_report.h"
#include "report/slow_kernels.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::ordered_json;

Json peak_json(const Plan& plan) {
  const PhasePlan* phase = peak_phase(plan);
  if (phase == nullptr || phase->nodes.empty()) return nullptr;
  Json values = Json::array();
  for (const PeakValue& peak : peak_values(plan)) {
    if (values.size() == 40) break;
    values.push_back(ordered_object({{"name", peak.value->name},
                                     {"layer", peak.value->layer},
                                     {"category", std::string(name_of(peak.value->category))},
                                     {"shape", peak.value->type.shape.dims},
                                     {"dtype", std::string(keras_name(peak.value->type.dtype))},
                                     {"bytes", peak.bytes}}));
  }
  Json layers = Json::array();
  for (const PeakLayer& layer : peak_layers(plan))
    layers.push_back(ordered_object(
        {{"layer", layer.layer}, {"category", std::string(name_of(layer.category))}, {"bytes", layer.bytes}}));
  const Node& node = phase->graph.node(phase->peak_node);
  return ordered_object({{"phase", to_text(phase->name)},
                         {"node", node.op},
                         {"layer", node.layer},
                         {"layers", layers},
                         {"values", values}});
}

Json layers_json(const Model& model, const Plan& plan) {
  Json list = Json::array();
  for (const LayerBytes& layer : layer_bytes(model, plan))
    list.push_back(ordered_object({{"name", layer.info.name},
                                   {"class", layer.info.class_name},
                                   {"output_shape", layer.info.output.dims},
                                   {"parameters", layer.info.parameters},
                                   {"weight_bytes", layer.weight_bytes},
                                   {"activation_bytes", layer.activation_bytes},
                                   {"workspace_bytes", layer.workspace_bytes}}));
  return list;
}

Json slow_kernels_json(const Plan& plan, const DeviceInfo& device) {
  Json list = Json::array();
  for (const SlowKernel& slow : slow_kernels(plan, device))
    list.push_back(ordered_object({{"layer", slow.layer},
                                   {"op", slow.op},
                                   {"kernel", slow.kernel},
                                   {"seconds", slow.seconds},
                                   {"limit_seconds", slow.limit_seconds}}));
  return list;
}

Json batches_json(const Advice& advice) {
  Json list = Json::array();
  for (const BatchPrice& row : advice.batches)
    list.push_back(ordered_object({{"batch", row.batch},
                                   {"micro", row.micro},
                                   {"fits", row.fits},
                                   {"peak_bytes", row.peak_bytes},
                                   {"step_seconds", row.step_seconds},
                                   {"sample_seconds", row.step_seconds / static_cast<double>(row.batch)}}));
  return list;
}

Json precisions_json(const Advice& advice) {
  Json list = Json::array();
  for (const PrecisionPrice& row : advice.precisions)
    list.push_back(ordered_object({{"precision", row.precision},
                                   {"fits", row.fits},
                                   {"peak_bytes", row.peak_bytes},
                                   {"step_seconds", row.step_seconds}}));
  return list;
}

Json remedies_json(const Advice& advice) {
  Json list = Json::array();
  for (const PricedRemedy& remedy : advice.remedies)
    list.push_back(ordered_object({{"remedy", remedy.name},
                                   {"flags", remedy.flags},
                                   {"note", remedy.note},
                                   {"fits", remedy.fits},
                                   {"peak_bytes", remedy.peak_bytes},
                                   {"saves_bytes", remedy.saves_bytes},
                                   {"step_ratio", remedy.step_ratio},
                                   {"effect", std::string(name_of(remedy.effect))}}));
  return list;
}

Json frontier_json(const Advice& advice) {
  Json list = Json::array();
  for (const FrontierPoint& point : advice.frontier)
    list.push_back(ordered_object({{"budget_bytes", point.budget_bytes},
                                   {"peak_bytes", point.peak_bytes},
                                   {"step_ratio", point.step_ratio},
                                   {"levers", point.levers},
                                   {"chosen", point.chosen}}));
  return list;
}

void add_advice(const PlanReport& report, Json& json) {
  const Advice& advice = *report.advice;
  json["batches"] = batches_json(advice);
  json["precisions"] = precisions_json(advice);
  json["remedies"] = remedies_json(advice);
  if (!advice.frontier.empty()) json["frontier"] = frontier_json(advice);
  if (advice.keras) {
    json["keras"] = ordered_object({{"peak_bytes", advice.keras->peak_bytes()},
                                    {"step_bytes", advice.keras->step_bytes},
                                    {"library_bytes", advice.keras->library_bytes},
                                    {"estimate", true}});
    if (report.budget > 0) json["keras"]["fits"] = advice.keras->peak_bytes() <= report.budget;
  }
  if (!advice.command.empty())
    json["next"] = ordered_object({{"command", advice.command},
                                   {"changes", advice.command_changes},
                                   {"note", advice.command_note},
                                   {"peak_bytes", advice.command_peak_bytes}});
}

int64_t parameters_of(const Model& model) {
  int64_t sum = 0;
  for (const Weight& weight : model.weights()) sum += weight.shape.elements();
  return sum;
}

}  // namespace

Json plan_json(const PlanReport& report) {
  const SearchResult& result = *report.result;
  const Plan& plan = result.plan;
  const PhasePlan* peak = peak_phase(plan);
  const Bytes live = peak == nullptr ? plan.persistent_bytes : peak->live_set_bytes;
  Json categories = Json::array(), phases = Json::array(), levers = Json::array();
  for (const CategoryBytes& entry : categories_at_peak(plan))
    categories.push_back(ordered_object({{"name", std::string(name_of(entry.category))}, {"bytes", entry.bytes}}));
  // Weights are copied directly between file and arena, so loading and saving need only the persistent bytes.
  phases.push_back(ordered_object({{"name", "load"}, {"arena_bytes", plan.persistent_bytes}}));
  for (const PhasePlan& phase : plan.phases)
    phases.push_back(ordered_object({{"name", to_text(phase.name)},
                                     {"samples", phase.samples},
                                     {"arena_bytes", phase.arena_bytes},
                                     {"seconds", phase.seconds}}));
  if (plan.batch.effective > 0)
    phases.push_back(ordered_object({{"name", "save"}, {"arena_bytes", plan.persistent_bytes}}));
  for (const LeverUse& lever : plan.levers)
    levers.push_back(ordered_object({{"name", lever.name},
                                     {"count", lever.count},
                                     {"saves_bytes", lever.saves_bytes},
                                     {"costs_seconds", lever.costs_seconds},
                                     {"effect", std::string(name_of(lever.effect))}}));
  Json json = ordered_object({{"schema", "plimsoll.plan/1"},
                              {"model", ordered_object({{"file", report.file},
                                                        {"name", plan.model},
                                                        {"parameters", parameters_of(*report.model)},
                                                        {"layers", report.model->layers().size()}})},
                              {"device", ordered_object({{"name", report.device.name},
                                                         {"kind", report.device.kind},
                                                         {"memory_bytes", report.device.memory_bytes},
                                                         {"free_bytes", report.device.free_bytes}})},
                              {"batch", ordered_object({{"effective", plan.batch.effective},
                                                        {"micro", plan.batch.micro},
                                                        {"accumulation_steps", plan.batch.accumulation_steps()}})},
                              {"precision", plan.precision},
                              {"fits", result.fits}});
  if (report.device.memory_growth) json["device"]["memory_growth"] = true;
  // The digest of the calibration that the seconds come from; null: without one.
  json["calibration"] = plan.calibration.empty() ? Json() : Json(plan.calibration);
  if (report.budget > 0) json["budget_bytes"] = report.budget;
  json["peak_bytes"] = plan.peak_bytes();
  json["arena_bytes"] = plan.arena_bytes;
  json["overhead_bytes"] = plan.overhead_at_peak();
  json["data_bytes"] = plan.data_bytes;
  Json space = ordered_object({{"space", plan.memory}});
  if (report.budget > 0) space["budget_bytes"] = report.budget;
  space.update(ordered_object({{"arena_bytes", plan.arena_bytes},
                               {"overhead_bytes", plan.overhead_at_peak()},
                               {"data_bytes", plan.data_bytes},
                               {"peak_bytes", plan.peak_bytes()}}));
  json["memories"] = Json::array({space});
  for (const PlanMemory& memory : plan.beside)
    json["memories"].push_back(
        ordered_object({{"space", memory.name}, {"arena_bytes", memory.bytes}, {"peak_bytes", memory.bytes}}));
  if (plan.batch.effective > 0) {
    json["fixed_bytes"] = result.fixed_bytes;
    json["bytes_per_sample"] = result.bytes_per_sample;
  }
  json["live_set_bytes"] = live;
  json["gap"] = static_cast<double>(plan.arena_bytes) / static_cast<double>(live) - 1;
  json["least_bytes"] = result.least_bytes;
  json["categories"] = categories;
  json["phases"] = phases;
  json["peak"] = peak_json(plan);
  json["layers"] = layers_json(*report.model, plan);
  json["levers"] = levers;
  json["slow_kernels"] = slow_kernels_json(plan, report.device);
  if (report.advice != nullptr) add_advice(report, json);
  if (!report.data.is_null()) json["data"] = report.data;
  json["step_seconds"] = plan.step_seconds;
  json["compute_seconds"] = plan.compute_seconds;
  json["input_seconds"] = plan.input_seconds;
  if (result.least_compute_seconds > 0) json["least_compute_seconds"] = result.least_compute_seconds;
  json["solver"] = ordered_object({{"seconds", result.seconds}, {"candidates", result.candidates.size()}});
  return json;
}

Json cards_json(const std::vector<CardPrice>& cards) {
  Json list = Json::array();
  for (const CardPrice& card : cards) {
    list.push_back(ordered_object({{"device", card.profile},
                                   {"name", card.name},
                                   {"memory_bytes", card.memory_bytes},
                                   {"measured", card.measured},
                                   {"fits", card.fits},
                                   {"peak_bytes", card.peak_bytes},
                                   {"largest_batch", card.largest_batch}}));
    if (card.fits) list.back()["step_seconds"] = card.step_seconds;
  }
  return ordered_object({{"schema", "plimsoll.cards/1"}, {"cards", list}});
}

Json error_json(const Error& error) {
  return ordered_object({{"error", ordered_object({{"code", code_name(error.code)},
                                                   {"what", error.what},
                                                   {"facts", error.facts},
                                                   {"try", error.remedies},
                                                   {"exit_code", exit_code(error.code)}})}});
}

}  // namespace plimsoll::engine
