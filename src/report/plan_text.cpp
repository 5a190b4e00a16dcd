#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "report/layers.h"
#include "report/plan_report.h"
#include "report/slow_kernels.h"
#include "report/text_table.h"

namespace plimsoll::engine {
namespace {

std::string pieces_text(int64_t batch, int64_t micro) {
  if (micro >= batch || micro == 0) return "one piece";
  const int64_t whole = batch / micro, rest = batch % micro;
  return fmt::format("{} pieces of {}{}", whole, micro, rest == 0 ? "" : fmt::format(" and one of {}", rest));
}

std::string epoch_text(const PlanReport& report) {
  const int64_t samples = report.advice != nullptr ? report.advice->epoch_samples : 0;
  const Plan& plan = report.result->plan;
  if (samples == 0 || plan.batch.effective == 0) return "";
  const int64_t steps = (samples + plan.batch.effective - 1) / plan.batch.effective;
  return fmt::format(", an epoch of {} steps about {}", steps,
                     duration_text(plan.step_seconds * static_cast<double>(steps)));
}

}  // namespace

std::string plan_batch(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  if (plan.batch.effective == 0 || !report.result->fits) return "";
  return fmt::format("Batch {} runs in {}; a step takes about {}{}.", plan.batch.effective,
                     pieces_text(plan.batch.effective, plan.batch.micro), duration_text(plan.step_seconds),
                     epoch_text(report));
}

std::string plan_answer(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  const std::string peak = format_bytes(plan.peak_bytes());
  if (report.budget == 0) return fmt::format("Needs {}; no budget was set.", peak);
  const std::string budget = format_bytes(report.budget);
  if (report.result->fits)
    return fmt::format("Fits: {} of {}{}.", peak, budget,
                       report.margin > 0 ? ", the free memory less " + format_bytes(report.margin) : "");
  return fmt::format("Does not fit: even the smallest plan needs {} for batch {}, {} more than {}.", peak,
                     plan.batch.effective, format_bytes(plan.peak_bytes() - report.budget), budget);
}

std::string keras_answer(const PlanReport& report) {
  if (report.advice == nullptr || !report.advice->keras) return "";
  const KerasEstimate& keras = *report.advice->keras;
  const double times = static_cast<double>(keras.peak_bytes()) / static_cast<double>(report.result->plan.peak_bytes());
  std::string text = fmt::format("Keras would need about {} for the same step", format_bytes(keras.peak_bytes()));
  if (times >= 1.05) text += fmt::format(", {:.{}f} times as much", times, times < 9.95 ? 1 : 0);
  if (report.budget > 0) text += keras.peak_bytes() <= report.budget ? "; it fits too" : "; it does not fit";
  return text + ".";
}

namespace {

std::string lines_of(const std::string& sentence) {
  return sentence.empty() ? "" : wrapped(sentence);
}

int64_t parameters_of(const Model& model) {
  int64_t sum = 0;
  for (const Weight& weight : model.weights()) sum += weight.shape.elements();
  return sum;
}

std::string header_text(const PlanReport& report) {
  std::string text = wrapped(fmt::format("{}, {} parameters, {}, on {}", report.result->plan.model,
                                         with_commas(parameters_of(*report.model)), report.result->plan.precision,
                                         report.device.name));
  if (report.device.memory_growth) text += "memory growth: a phase takes its memory when it first runs\n";
  if (!report.result->plan.calibration.empty())
    text += fmt::format("Times come from calibration {}.\n", report.result->plan.calibration);
  return "\n" + text;
}

// ---- Where the bytes are

std::vector<PeakLayer> layers_of(const Plan& plan, Category category) {
  std::vector<PeakLayer> list = peak_layers(plan);
  std::erase_if(list, [&](const PeakLayer& layer) { return layer.category != category; });
  return list;
}

std::string_view people_name(Category category) {
  return category == Category::kOptimizer       ? "optimizer state"
         : category == Category::kInputs        ? "inputs and labels"
         : category == Category::kWorkspace     ? "workspace of kernels"
         : category == Category::kFragmentation ? "gaps between tensors"
                                                : name_of(category);
}

void add_bytes(TextTable& table, const std::string& name, Bytes bytes) {
  table.row({name, with_commas(bytes), format_bytes(bytes)});
}

void add_categories(const Plan& plan, TextTable& table) {
  constexpr size_t kLargest = 6;
  constexpr Bytes kNoticeable = 20;  // of the arena: a twentieth
  std::vector<CategoryBytes> categories = categories_at_peak(plan);
  std::stable_sort(categories.begin(), categories.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const CategoryBytes& entry : categories) {
    if (entry.bytes == 0) continue;
    add_bytes(table, std::string(people_name(entry.category)), entry.bytes);
    const std::vector<PeakLayer> layers = layers_of(plan, entry.category);
    if (entry.bytes * kNoticeable < plan.arena_bytes || layers.size() < 2 || entry.category == Category::kInputs)
      continue;
    Bytes others = entry.bytes;
    for (size_t i = 0; i < layers.size() && i < kLargest; ++i) {
      add_bytes(table, "  " + layers[i].layer, layers[i].bytes);
      others -= layers[i].bytes;
    }
    if (layers.size() > kLargest) add_bytes(table, fmt::format("  {} other layers", layers.size() - kLargest), others);
  }
}

std::string peak_text(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  const PhasePlan* peak = peak_phase(plan);
  std::string moment;
  if (peak != nullptr && !peak->nodes.empty()) {
    const Node& node = peak->graph.node(peak->peak_node);
    moment = fmt::format(", while {}{}{} runs", node.op, node.layer.empty() ? "" : " of ", node.layer);
  }
  TextTable table;
  add_categories(plan, table);
  add_bytes(table, "all tensors, in one block (the arena)", plan.arena_bytes);
  add_bytes(table, "program and libraries, at most", plan.overhead_at_peak());
  const Bytes data = plan.data_bytes - report.held_before;
  if (data > 0) add_bytes(table, "reading the next batch", data);
  if (report.held_before > 0) add_bytes(table, "held by the program before", report.held_before);
  add_bytes(table, "the whole process", plan.peak_bytes());
  for (const PlanMemory& memory : plan.beside)
    add_bytes(table, memory.space == Space::kHost ? "and on the host, pinned" : "and in memory " + memory.name,
              memory.bytes);
  return "\n" + wrapped("Where the bytes are at the peak" + moment) + table.text();
}

// ---- How it fits

std::string lever_name(const LeverUse& lever) {
  const std::string& name = lever.name;
  if (name == kMicroBatch) return fmt::format("gradient accumulation over {} pieces", lever.count);
  if (name == "split") return fmt::format("the batch in {} pieces inside one step", lever.count);
  if (name == "recompute") return fmt::format("gradient checkpointing (recompute) of {} tensors", lever.count);
  if (name == "offload") return fmt::format("offload of {} tensors to the host's memory", lever.count);
  return fmt::format("{}: {}", name, lever.count);
}

std::string levers_text(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  std::string text;
  for (const LeverUse& lever : plan.levers)
    text += wrapped(
        fmt::format("  {}: {} {}, {:+.1f} ms per step; {}", lever_name(lever), lever.saves_bytes < 0 ? "adds" : "saves",
                    format_bytes(std::abs(lever.saves_bytes)), lever.costs_seconds * 1e3, words_of(lever.effect)),
        4);
  return text.empty() ? text : "\nHow memory is saved\n" + text;
}

// ---- What else there is

std::string batches_text(const PlanReport& report) {
  if (report.advice == nullptr || report.advice->batches.empty()) return "";
  const std::vector<BatchPrice>& batches = report.advice->batches;
  const std::string budget = report.budget > 0 ? " in " + format_bytes(report.budget) : "";
  if (std::none_of(batches.begin(), batches.end(), [](const BatchPrice& row) { return row.fits; }))
    return "\n" + wrapped(fmt::format("None of the batches fits{} that were tried: batch {} needs {} at least.", budget,
                                      batches.front().batch, format_bytes(batches.front().peak_bytes)));
  TextTable table(true);
  table.row({"batch", "memory", "per step", "per sample", "runs in"});
  for (const BatchPrice& row : batches) {
    const std::string name = fmt::format("{}{}", row.batch, row.asked ? " *" : "");
    if (row.fits)
      table.row({name, format_bytes(row.peak_bytes), duration_text(row.step_seconds),
                 duration_text(row.step_seconds / static_cast<double>(row.batch)), pieces_text(row.batch, row.micro)});
    else
      table.row({name, format_bytes(row.peak_bytes), "", "", "does not fit"});
  }
  return fmt::format("\nWhich batch fits{} (* this plan)\n", budget) + table.text();
}

std::string precisions_text(const PlanReport& report) {
  if (report.advice == nullptr || report.advice->precisions.size() < 2) return "";
  TextTable table(true);
  table.row({"--precision", "memory", "per step", ""});
  for (const PrecisionPrice& row : report.advice->precisions)
    table.row(
        {row.precision, format_bytes(row.peak_bytes), duration_text(row.step_seconds), row.fits ? "" : "does not fit"});
  const bool narrow = std::any_of(report.advice->precisions.begin(), report.advice->precisions.end(),
                                  [](const PrecisionPrice& row) { return row.precision == "mixed_float16"; });
  return "\nWhich precision\n" + table.text() +
         (narrow ? "  plimsoll precision MODEL --data ... names the layers that need float32\n" : "");
}

// Two lines: the price and what it is, then the flags.
std::string remedy_text(const PricedRemedy& remedy) {
  const std::string note = remedy.note.empty() ? "" : fmt::format(" ({})", remedy.note);
  std::string text =
      wrapped(fmt::format("  {:>8}  {:>5.2f}x  {:<9}  {}{}", format_bytes(remedy.peak_bytes), remedy.step_ratio,
                          remedy.effect == Effect::kBitwise    ? "identical"
                          : remedy.effect == Effect::kRounding ? "rounding"
                                                               : "changed",
                          remedy.name, note),
              30);
  return text + (remedy.flags.empty() ? "" : std::string(30, ' ') + remedy.flags + "\n");
}

std::string remedies_text(const PlanReport& report) {
  if (report.advice == nullptr || report.advice->remedies.empty()) return "";
  const std::vector<PricedRemedy>& remedies = report.advice->remedies;
  std::string text = "\nWhat else changes the memory: add the flags to this command\n";
  const std::string head = "    memory    time  results    (time per sample, beside this plan)\n";
  bool fitting = false, failing = false;
  for (const PricedRemedy& remedy : remedies) {
    if (remedy.fits && !std::exchange(fitting, true)) text += head;
    if (!remedy.fits && !std::exchange(failing, true))
      text += std::string(fitting ? "\n" : "") + "These do not fit alone\n" + (fitting ? "" : head);
    text += remedy_text(remedy);
  }
  if (report.advice->quick)
    text += wrapped("Planning this model takes long, so most of this was tried without recompute and offload only.");
  return text;
}

std::string command_text(const PlanReport& report) {
  if (report.advice == nullptr) return "";
  const Advice& advice = *report.advice;
  if (advice.command.empty())
    return "\n" + wrapped("Nothing that was tried fits: a smaller model or a larger device is needed.");
  const std::string title =
      report.result->fits && !advice.command_note.empty() ? fmt::format("Next, {}, then type", advice.command_note)
      : report.result->fits
          ? "Next, type"
          : fmt::format("What fits: {} with {} ({}). Next, type", format_bytes(advice.command_peak_bytes),
                        advice.command_changes, advice.command_note);
  return "\n" + wrapped(title) + wrapped_command(advice.command);
}

// Says what the data add to a step, if that is noticeable.
std::string input_text(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  if (plan.step_seconds <= 1.001 * plan.compute_seconds) return "";
  const char* const what = report.device.own_memory ? "copying its data to the device" : "reading its data";
  const std::string text = plan.step_seconds > plan.input_seconds
                               ? fmt::format("A step takes {}: {} takes {}, and nothing is read ahead.",
                                             duration_text(plan.step_seconds), what, duration_text(plan.input_seconds))
                               : fmt::format("A step takes {}, because {} takes longer than the computation.",
                                             duration_text(plan.step_seconds), what);
  return "\n" + wrapped(text);
}

}  // namespace

namespace {

std::string data_text(const PlanReport& report) {
  std::string text;
  for (const std::string& line : report.data_lines) text += wrapped("  " + line, 2);
  return text.empty() ? text : "\nHow the data are read\n" + text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  return lines_of(plan_answer(report)) + lines_of(plan_batch(report)) + lines_of(keras_answer(report)) +
         header_text(report) + peak_text(report) + levers_text(report) + data_text(report) + input_text(report) +
         slow_kernels_text(report.result->plan, report.device) + batches_text(report) + precisions_text(report) +
         remedies_text(report) + command_text(report);
}

std::string plan_line(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  std::string text = fmt::format("plan: {}", format_bytes(plan.peak_bytes()));
  if (report.budget > 0) text += fmt::format(" of {}", format_bytes(report.budget));
  text += fmt::format(", batch {} in {}", plan.batch.effective, pieces_text(plan.batch.effective, plan.batch.micro));
  return text + fmt::format(", {} per step on {}", duration_text(plan.step_seconds), report.device.name);
}

}  // namespace plimsoll::engine
