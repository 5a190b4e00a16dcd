#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/json.h"
#include "base/json_numbers.h"
#include "plan/plan.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

// Older formats: 1: values at multiples of 64 bytes; 2: no tf32; 3: no lever settings; 4: nodes without stage and
// queue, `host` instead of memories, not all lever settings.
constexpr const char* kFormat = "plimsoll.saved-plan/5";

// whole() and finite() return whole and finite numbers, and throw std::range_error for anything else.
template <typename Integer = int64_t>
Integer whole(const json& j) {
  using Limits = std::numeric_limits<Integer>;
  const auto value = whole_number(j, Limits::min(), Limits::max());
  if (!value) throw std::range_error(fmt::format("expected a whole number, got {:.40}", j.dump()));
  return static_cast<Integer>(*value);
}

double finite(const json& j) {
  if (!j.is_number() || !std::isfinite(j.get<double>()))
    throw std::range_error(fmt::format("expected a number, got {:.40}", j.dump()));
  return j.get<double>();
}

Space space_from(const json& j) {
  const auto space = space_from_text(j.get_ref<const std::string&>());
  if (!space) throw std::range_error(fmt::format("expected a memory space, got {:.40}", j.dump()));
  return *space;
}

json phase_to_json(const PhasePlan& phase) {
  json nodes = json::array(), values = json::array(), beside = json::array();
  for (const SpaceBytes& memory : phase.beside) beside.push_back({to_text(memory.space), memory.bytes});
  for (const PlannedNode& node : phase.nodes)
    nodes.push_back({node.kernel, node.workspace_offset, node.workspace_bytes, node.seconds});
  for (const Placement& value : phase.values) {
    values.push_back({value.offset, value.first, value.last});
    if (value.space != Space::kDevice) values.back().push_back(to_text(value.space));
  }
  return json_object({{"name", to_text(phase.name)},
                      {"samples", phase.samples},
                      {"graph", print(phase.graph)},
                      {"nodes", nodes},
                      {"values", values},
                      {"arena_bytes", phase.arena_bytes},
                      {"live_set_bytes", phase.live_set_bytes},
                      {"beside", beside},
                      {"peak_node", phase.peak_node},
                      {"seconds", phase.seconds},
                      {"primitives", phase.primitives}});
}

Result<PhasePlan> phase_from_json(const json& j) {
  PhasePlan phase;
  const auto& text = j.at("name").get_ref<const std::string&>();
  const auto name = phase_from_text(text);
  if (!name) return fail(ErrorCode::kBadPlan, fmt::format("unknown phase '{:.40}'", text));
  phase.name = *name;
  phase.samples = whole(j.at("samples"));
  PLIMSOLL_ASSIGN(phase.graph, parse_graph(j.at("graph").get_ref<const std::string&>()));
  for (const json& node : j.at("nodes"))
    phase.nodes.push_back({node.at(0), whole(node.at(1)), whole(node.at(2)), finite(node.at(3))});
  for (const json& value : j.at("values"))
    phase.values.push_back({whole(value.at(0)), whole<int>(value.at(1)), whole<int>(value.at(2)),
                            value.size() > 3 ? space_from(value.at(3)) : Space::kDevice});
  phase.arena_bytes = whole(j.at("arena_bytes"));
  phase.live_set_bytes = whole(j.at("live_set_bytes"));
  for (const json& memory : j.at("beside")) phase.beside.push_back({space_from(memory.at(0)), whole(memory.at(1))});
  phase.peak_node = whole<int>(j.at("peak_node"));
  phase.seconds = finite(j.at("seconds"));
  phase.primitives = whole<int>(j.at("primitives"));
  return phase;
}

Result<PersistentSlot> slot_from_json(const json& j) {
  const auto dtype = dtype_from_name(j.at(1).get<std::string>());
  const auto category = category_from_name(j.at(3).get<std::string>());
  if (!dtype || !category)
    return fail(ErrorCode::kBadPlan, fmt::format("slot {}: unknown dtype or category", j.at(0).dump()));
  std::vector<int64_t> dims;
  for (const json& dim : j.at(2)) dims.push_back(whole(dim));
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(std::move(dims), "slot " + j.at(0).dump()));
  return PersistentSlot{j.at(0), {*dtype, std::move(shape)}, *category, j.at(4), whole(j.at(5))};
}

Result<Plan> read_plan(const json& j) {
  Plan plan;
  if (j.at("format") != kFormat)
    return fail(ErrorCode::kBadPlan,
                fmt::format("expected a plan of format {}, got {}", kFormat, j.at("format").dump()));
  plan.model = j.at("model");
  plan.device = j.at("device");
  plan.memory = j.at("memory");
  plan.precision = j.at("precision");
  plan.tf32 = j.at("tf32");
  plan.program = j.at("program");
  if (j.contains("calibration")) plan.calibration = j.at("calibration");
  for (const auto& [lever, setting] : j.at("settings").items()) plan.settings.set(lever, whole(setting));
  plan.batch = batch_of(whole(j.at("batch")), plan.settings);
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
    plan.levers.push_back({lever.at("name"), whole(lever.at("count")), whole(lever.at("saves_bytes")),
                           finite(lever.at("costs_seconds")),
                           effect == "bitwise"    ? Effect::kBitwise
                           : effect == "rounding" ? Effect::kRounding
                                                  : Effect::kTraining});
  }
  plan.persistent_bytes = whole(j.at("persistent_bytes"));
  plan.arena_bytes = whole(j.at("arena_bytes"));
  for (const json& memory : j.at("beside"))
    plan.beside.push_back({space_from(memory.at(0)), memory.at(1), whole(memory.at(2))});
  plan.overhead_bytes = whole(j.at("overhead_bytes"));
  plan.data_bytes = whole(j.at("data_bytes"));
  plan.planning_bytes = whole(j.at("planning_bytes"));
  plan.step_seconds = plan.compute_seconds = finite(j.at("step_seconds"));  // the parts are not stored
  return plan;
}

}  // namespace

json to_json(const Plan& plan) {
  json persistent = json::array(), phases = json::array(), levers = json::array(), beside = json::array();
  for (const PlanMemory& memory : plan.beside) beside.push_back({to_text(memory.space), memory.name, memory.bytes});
  for (const PersistentSlot& slot : plan.persistent)
    persistent.push_back({slot.name, std::string(name_of(slot.type.dtype)), slot.type.shape.dims,
                          std::string(name_of(slot.category)), slot.layer, slot.offset});
  for (const PhasePlan& phase : plan.phases) phases.push_back(phase_to_json(phase));
  json settings = json::object();
  for (const auto& [lever, setting] : plan.settings.values()) settings[lever] = setting;
  for (const LeverUse& lever : plan.levers)
    levers.push_back(json_object({{"name", lever.name},
                                  {"count", lever.count},
                                  {"saves_bytes", lever.saves_bytes},
                                  {"costs_seconds", lever.costs_seconds},
                                  {"effect", std::string(name_of(lever.effect))}}));
  json saved = json_object({{"format", kFormat},
                            {"model", plan.model},
                            {"device", plan.device},
                            {"memory", plan.memory},
                            {"precision", plan.precision},
                            {"tf32", plan.tf32},
                            {"program", plan.program},
                            {"batch", plan.batch.effective},
                            {"settings", settings},
                            {"persistent", persistent},
                            {"phases", phases},
                            {"levers", levers},
                            {"persistent_bytes", plan.persistent_bytes},
                            {"arena_bytes", plan.arena_bytes},
                            {"beside", beside},
                            {"overhead_bytes", plan.overhead_bytes},
                            {"data_bytes", plan.data_bytes},
                            {"planning_bytes", plan.planning_bytes},
                            {"step_seconds", plan.step_seconds}});
  if (!plan.calibration.empty()) saved["calibration"] = plan.calibration;
  return saved;
}

Result<Plan> plan_from_json(const json& j) {
  const auto damaged = [](std::string why) {
    return fail(Error{ErrorCode::kBadPlan,
                      "the plan file is damaged",
                      {std::move(why)},
                      {"create it again: plimsoll plan ... --save FILE"}});
  };
  try {
    return read_plan(j);
  } catch (const json::exception& e) {
    return damaged(e.what());
  } catch (const std::range_error& e) {
    return damaged(e.what());
  }
}

}  // namespace plimsoll::engine
