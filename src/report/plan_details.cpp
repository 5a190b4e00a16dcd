// The tables of --details.
#include <fmt/format.h>

#include <algorithm>

#include "report/layers.h"
#include "report/plan_report.h"
#include "report/text_table.h"

namespace plimsoll::engine {
namespace {

std::string shape_text(const Shape& shape) {
  return shape.rank() == 0 ? "scalar" : fmt::format("{}", fmt::join(shape.dims, " x "));
}

std::string layers_table(const PlanReport& report) {
  TextTable table;
  table.row({"layer", "output", "parameters", "weights", "activations"});
  int64_t parameters = 0;
  Bytes weights = 0, activations = 0;
  for (const LayerBytes& layer : layer_bytes(*report.model, report.result->plan)) {
    table.row({fmt::format("{} ({})", layer.info.name, layer.info.class_name), shape_text(layer.info.output),
               with_commas(layer.info.parameters), format_bytes(layer.weight_bytes),
               format_bytes(layer.activation_bytes)});
    parameters += layer.info.parameters;
    weights += layer.weight_bytes;
    activations += layer.activation_bytes;
  }
  table.row({"all layers", "", with_commas(parameters), format_bytes(weights), format_bytes(activations)});
  return "\nLayers (over the whole step: not all activations are alive at the same time)\n" + table.text();
}

std::string phases_table(const Plan& plan) {
  TextTable table;
  table.row({"phase", "samples", "arena", "predicted time"});
  table.row({"load", "", format_bytes(plan.persistent_bytes), ""});
  for (const PhasePlan& phase : plan.phases)
    table.row({to_text(phase.name), phase.samples > 0 ? fmt::format("{}", phase.samples) : "",
               format_bytes(phase.arena_bytes), duration_text(phase.seconds)});
  if (plan.batch.effective > 0) table.row({"save", "", format_bytes(plan.persistent_bytes), ""});
  return "\nPhases\n" + table.text();
}

// How good the plan is, beside bounds.
std::string bounds_text(const PlanReport& report) {
  const SearchResult& result = *report.result;
  const Plan& plan = result.plan;
  std::string text;
  if (const double whole = result.unlevered_seconds; result.least_compute_seconds > 0 && whole > 0)
    text += wrapped(
        fmt::format("A step takes {:+.1f} %; for these bytes, no choice of what to recompute takes less "
                    "than {:+.1f} %.",
                    100 * (plan.compute_seconds / whole - 1), 100 * (result.least_compute_seconds / whole - 1)));
  if (result.unlevered_arena_bytes > 0 && plan.batch.effective > 0)
    text += wrapped(fmt::format(
        "Without levers the arena needs {} + {} per sample{}.", format_bytes(result.fixed_bytes),
        format_bytes(result.bytes_per_sample),
        result.least_bytes > 0 ? "; the smallest plan found needs " + format_bytes(result.least_bytes) : ""));
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string plan_details(const PlanReport& report) {
  return layers_table(report) + phases_table(report.result->plan) + bounds_text(report);
}

std::string cards_text(const std::vector<CardPrice>& cards) {
  TextTable table(true);
  table.row({"--device", "memory", "needs", "per step", "largest batch", ""});
  for (const CardPrice& card : cards)
    table.row({card.profile + (card.measured ? " (measured)" : ""), format_bytes(card.memory_bytes),
               format_bytes(card.peak_bytes), card.fits ? duration_text(card.step_seconds) : "",
               card.largest_batch > 0 ? fmt::format("{}", card.largest_batch) : "none",
               card.fits ? "" : "does not fit"});
  return table.text() + "\n" +
         wrapped(
             "The largest batch is the largest power of two that fits with all levers. Speeds are estimates: of a "
             "measured card, its rates were measured; of the others, they are the data sheet's, reduced as on the "
             "measured card.");
}

}  // namespace plimsoll::engine
