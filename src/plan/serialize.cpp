#include <fmt/format.h>

#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "plimsoll.saved-plan/3";  // 1: values at multiples of 64 bytes; 2: tf32 not told

json phase_to_json(const PhasePlan& phase) {
  json nodes = json::array(), values = json::array();
  for (const PlannedNode& node : phase.nodes)
    nodes.push_back({node.kernel, node.workspace_offset, node.workspace_bytes, node.seconds});
  for (const Placement& value : phase.values) {
    values.push_back({value.offset, value.first, value.last});
    if (value.host != kNone) values.back().push_back(value.host);
  }
  return json_object({{"name", phase.name},
                      {"samples", phase.samples},
                      {"graph", print(phase.graph)},
                      {"nodes", nodes},
                      {"values", values},
                      {"arena_bytes", phase.arena_bytes},
                      {"live_set_bytes", phase.live_set_bytes},
                      {"host_bytes", phase.host_bytes},
                      {"peak_node", phase.peak_node},
                      {"seconds", phase.seconds},
                      {"primitives", phase.primitives}});
}

Result<PhasePlan> phase_from_json(const json& j) {
  PhasePlan phase;
  phase.name = j.at("name");
  phase.samples = j.at("samples");
  PLIMSOLL_ASSIGN(phase.graph, parse_graph(j.at("graph").get<std::string>()));
  for (const json& node : j.at("nodes")) phase.nodes.push_back({node.at(0), node.at(1), node.at(2), node.at(3)});
  for (const json& value : j.at("values"))
    phase.values.push_back(
        {value.at(0), value.at(1), value.at(2), value.size() > 3 ? value.at(3).get<Bytes>() : kNone});
  phase.arena_bytes = j.at("arena_bytes");
  phase.live_set_bytes = j.at("live_set_bytes");
  phase.host_bytes = j.at("host_bytes");
  phase.peak_node = j.at("peak_node");
  phase.seconds = j.at("seconds");
  phase.primitives = j.at("primitives");
  return phase;
}

Result<PersistentSlot> slot_from_json(const json& j) {
  const auto dtype = dtype_from_name(j.at(1).get<std::string>());
  const auto category = category_from_name(j.at(3).get<std::string>());
  if (!dtype || !category)
    return fail(ErrorCode::kBadPlan, fmt::format("slot {}: unknown dtype or category", j.at(0).dump()));
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(j.at(2).get<std::vector<int64_t>>(), "slot " + j.at(0).dump()));
  return PersistentSlot{j.at(0), {*dtype, std::move(shape)}, *category, j.at(4), j.at(5)};
}

Result<Plan> read_plan(const json& j) {
  Plan plan;
  if (j.at("format") != kFormat)
    return fail(ErrorCode::kBadPlan,
                fmt::format("expected a plan of format {}, got {}", kFormat, j.at("format").dump()));
  plan.model = j.at("model");
  plan.device = j.at("device");
  plan.precision = j.at("precision");
  plan.tf32 = j.at("tf32");
  plan.program = j.at("program");
  plan.batch = {j.at("batch"), j.at("micro_batch")};
  plan.per_micro_batch_norm = j.at("per_micro_batch_norm");
  for (const json& slot : j.at("persistent")) {
    PLIMSOLL_ASSIGN(PersistentSlot read, slot_from_json(slot));
    plan.persistent.push_back(std::move(read));
  }
  for (const json& phase : j.at("phases")) {
    PLIMSOLL_ASSIGN(PhasePlan read, phase_from_json(phase));
    plan.phases.push_back(std::move(read));
  }
  for (const json& lever : j.at("levers")) {
    const std::string effect = lever.at("effect");
    plan.levers.push_back({lever.at("name"), lever.at("count"), lever.at("saves_bytes"), lever.at("costs_seconds"),
                           effect == "bitwise"    ? Effect::kBitwise
                           : effect == "rounding" ? Effect::kRounding
                                                  : Effect::kTraining});
  }
  plan.persistent_bytes = j.at("persistent_bytes");
  plan.arena_bytes = j.at("arena_bytes");
  plan.host_bytes = j.at("host_bytes");
  plan.overhead_bytes = j.at("overhead_bytes");
  plan.data_bytes = j.at("data_bytes");
  plan.prefetch = j.at("prefetch");
  plan.step_seconds = j.at("step_seconds");
  return plan;
}

}  // namespace

json to_json(const Plan& plan) {
  json persistent = json::array(), phases = json::array(), levers = json::array();
  for (const PersistentSlot& slot : plan.persistent)
    persistent.push_back({slot.name, std::string(name_of(slot.type.dtype)), slot.type.shape.dims,
                          std::string(name_of(slot.category)), slot.layer, slot.offset});
  for (const PhasePlan& phase : plan.phases) phases.push_back(phase_to_json(phase));
  for (const LeverUse& lever : plan.levers)
    levers.push_back(json_object({{"name", lever.name},
                                  {"count", lever.count},
                                  {"saves_bytes", lever.saves_bytes},
                                  {"costs_seconds", lever.costs_seconds},
                                  {"effect", std::string(name_of(lever.effect))}}));
  return json_object({{"format", kFormat},
                      {"model", plan.model},
                      {"device", plan.device},
                      {"precision", plan.precision},
                      {"tf32", plan.tf32},
                      {"program", plan.program},
                      {"batch", plan.batch.effective},
                      {"micro_batch", plan.batch.micro},
                      {"per_micro_batch_norm", plan.per_micro_batch_norm},
                      {"persistent", persistent},
                      {"phases", phases},
                      {"levers", levers},
                      {"persistent_bytes", plan.persistent_bytes},
                      {"arena_bytes", plan.arena_bytes},
                      {"host_bytes", plan.host_bytes},
                      {"overhead_bytes", plan.overhead_bytes},
                      {"data_bytes", plan.data_bytes},
                      {"prefetch", plan.prefetch},
                      {"step_seconds", plan.step_seconds}});
}

Result<Plan> plan_from_json(const json& j) {
  try {
    return read_plan(j);
  } catch (const json::exception& e) {
    return fail(Error{
        ErrorCode::kBadPlan, "the plan file is damaged", {e.what()}, {"make it again: plimsoll plan ... --save FILE"}});
  }
}

}  // namespace plimsoll
