#include <fmt/format.h>

#include <algorithm>

#include "report/layers.h"
#include "report/plan_report.h"
#include "report/slow_kernels.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostLayers = 24;  // --json lists all of them

// Columns are as wide as their widest cell. The first column is left-aligned, the others are right-aligned.
class Table {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const {
    std::vector<size_t> widths;
    for (const auto& cells : rows_)
      for (size_t i = 0; i < cells.size(); ++i) {
        if (widths.size() <= i) widths.push_back(0);
        widths[i] = std::max(widths[i], cells[i].size());
      }
    std::string text;
    for (const auto& cells : rows_) {
      std::string line = "  ";
      for (size_t i = 0; i < cells.size(); ++i)
        line += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i]) : fmt::format("  {:>{}}", cells[i], widths[i]);
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string with_commas(int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string shape_text(const Shape& shape) {
  return shape.rank() == 0 ? "scalar" : fmt::format("{}", fmt::join(shape.dims, " x "));
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 2 : 0);
}

std::string pieces_text(const BatchPlan& batch) {
  const int64_t whole = batch.effective / batch.micro, rest = batch.effective % batch.micro;
  return rest == 0
             ? fmt::format("{} micro-batches of {}", whole, batch.micro)
             : fmt::format("{} micro-batch{} of {} and one of {}", whole, whole > 1 ? "es" : "", batch.micro, rest);
}

std::string heading(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  std::string text = fmt::format("{} on {}, {}\n", plan.model, report.device.name, plan.precision);
  if (plan.batch.effective > 0) {
    text += fmt::format("batch {}", plan.batch.effective);
    if (plan.batch.micro < plan.batch.effective) text += ", run as " + pieces_text(plan.batch);
    text += "\n";
  }
  if (report.device.memory_growth)
    text += "memory growth: each phase takes its memory when it first runs; all memory is released at the end\n";
  if (report.budget == 0) return text + fmt::format("needs {}; no budget was set\n\n", format_bytes(plan.peak_bytes()));
  if (report.result->fits)
    text += fmt::format(
        "fits: {} of {}{}\n\n", format_bytes(plan.peak_bytes()), format_bytes(report.budget),
        report.margin > 0 ? fmt::format(" (the free memory minus a margin of {})", format_bytes(report.margin)) : "");
  else
    text += fmt::format("does not fit: it needs {}, but the budget is {}\n\n", format_bytes(plan.peak_bytes()),
                        format_bytes(report.budget));
  return text;
}

std::string layers_table(const PlanReport& report) {
  Table table;
  table.row({"layer", "output", "parameters", "weights", "activations", "workspace"});
  const auto layers = layer_bytes(*report.model, report.result->plan);
  for (size_t i = 0; i < layers.size() && i < kMostLayers; ++i) {
    const LayerBytes& layer = layers[i];
    table.row({fmt::format("{} ({})", layer.info.name, layer.info.class_name), shape_text(layer.info.output),
               with_commas(layer.info.parameters), format_bytes(layer.weight_bytes),
               format_bytes(layer.activation_bytes), format_bytes(layer.workspace_bytes)});
  }
  std::string text = table.text();
  if (layers.size() > kMostLayers)
    text += fmt::format("  ... {} more layers{}\n", layers.size() - kMostLayers,
                        report.in_program ? "" : ": --json lists all");
  return text + "\n";
}

std::string bytes_table(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  const PhasePlan* peak = peak_phase(plan);
  Table table;
  if (peak != nullptr && !peak->nodes.empty()) {
    const Node& node = peak->graph.node(peak->peak_node);
    table.row({fmt::format("at the peak (phase {}, {}{}{})", to_text(peak->name), node.op,
                           node.layer.empty() ? "" : " of ", node.layer),
               "bytes", ""});
  }
  for (const CategoryBytes& entry : categories_at_peak(plan))
    if (entry.bytes > 0)
      table.row({"  " + std::string(name_of(entry.category)), with_commas(entry.bytes), format_bytes(entry.bytes)});
  table.row({"arena", with_commas(plan.arena_bytes), format_bytes(plan.arena_bytes)});
  table.row({"overhead (bound, verified before step 0)", with_commas(plan.overhead_at_peak()),
             format_bytes(plan.overhead_at_peak())});
  const Bytes data = plan.data_bytes - report.held_before;
  table.row({"data buffers", with_commas(data), format_bytes(data)});
  if (report.held_before > 0)
    table.row({"held by the program before", with_commas(report.held_before), format_bytes(report.held_before)});
  table.row({"peak of the process", with_commas(plan.peak_bytes()), format_bytes(plan.peak_bytes())});
  for (const PlanMemory& memory : plan.beside)
    table.row({memory.space == Space::kHost ? "in the host's memory, pinned" : "in memory " + memory.name,
               with_commas(memory.bytes), format_bytes(memory.bytes)});
  return table.text() + "\n";
}

std::string phases_table(const Plan& plan) {
  Table table;
  table.row({"phase", "samples", "arena", "predicted time"});
  table.row({"load", "", format_bytes(plan.persistent_bytes), ""});
  for (const PhasePlan& phase : plan.phases)
    table.row({to_text(phase.name), phase.samples > 0 ? fmt::format("{}", phase.samples) : "",
               format_bytes(phase.arena_bytes), milliseconds(phase.seconds)});
  if (plan.batch.effective > 0) table.row({"save", "", format_bytes(plan.persistent_bytes), ""});
  const std::string source =
      plan.calibration.empty() ? "" : fmt::format("  times from calibration {}\n", plan.calibration);
  return table.text() + source;
}

// Says what the data add to a step, if that is noticeable.
std::string input_text(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  if (plan.step_seconds <= 1.001 * plan.compute_seconds) return "";
  const char* const what = report.device.own_memory ? "copying its data to the device" : "reading its data";
  if (plan.step_seconds > plan.input_seconds)
    return fmt::format("  a step takes {}: {} takes {}, and nothing is read ahead\n", milliseconds(plan.step_seconds),
                       what, milliseconds(plan.input_seconds));
  return fmt::format("  a step takes {}, because {} takes longer than the computation\n",
                     milliseconds(plan.step_seconds), what);
}

// Names what runs on a kernel far from the device's roofline, if it takes a noticeable part of the step.
std::string slow_text(const PlanReport& report) {
  constexpr size_t kMost = 5;
  const std::vector<SlowKernel> slow = slow_kernels(report.result->plan, report.device);
  std::string text;
  for (size_t i = 0; i < slow.size() && i < kMost; ++i) {
    const SlowKernel& one = slow[i];
    text += fmt::format("  slow kernel: {}{}{} ({}) takes {}, {:.0f} times what the device allows\n", one.op,
                        one.layer.empty() ? "" : " of ", one.layer, one.kernel, milliseconds(one.seconds),
                        one.seconds / std::max(one.limit_seconds, 1e-9));
  }
  if (slow.size() > kMost) text += fmt::format("  ... and {} more slow kernels\n", slow.size() - kMost);
  return text.empty() ? text : "\n" + text;
}

// `bytes` may be negative: micro-batches need gradient sums, which can take more memory than they save.
std::string saving(Bytes bytes, const char* saves, const char* adds) {
  return fmt::format("{} {}", bytes < 0 ? adds : saves, format_bytes(std::abs(bytes)));
}

std::string levers_text(const PlanReport& report) {
  const SearchResult& result = *report.result;
  const Plan& plan = result.plan;
  std::string text;
  for (const LeverUse& lever : plan.levers)
    text += fmt::format("  lever {}: {}, {} of arena, {:+.1f} ms per step, effect {}\n", lever.name, lever.count,
                        saving(lever.saves_bytes, "saves", "adds"), lever.costs_seconds * 1e3, name_of(lever.effect));
  if (const double whole = result.unlevered_seconds; result.least_compute_seconds > 0 && whole > 0)
    text += fmt::format(
        "  a step takes {:+.1f} %; for these bytes, no choice of what to recompute takes less than {:+.1f} %\n",
        100 * (plan.compute_seconds / whole - 1), 100 * (result.least_compute_seconds / whole - 1));
  const bool searched = result.unlevered_arena_bytes > 0;  // false: the plan was given
  if (searched && plan.levers.size() > 1)
    text += fmt::format("  together they {} of arena compared with the whole batch without levers\n",
                        saving(result.unlevered_arena_bytes - plan.arena_bytes, "save", "add"));
  if (searched && plan.batch.effective > 0)
    text += fmt::format(
        "  without levers the arena needs {} + {} per sample{}\n", format_bytes(result.fixed_bytes),
        format_bytes(result.bytes_per_sample),
        result.least_bytes > 0 ? "; the smallest plan found needs " + format_bytes(result.least_bytes) : "");
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  return heading(report) + layers_table(report) + bytes_table(report) + phases_table(report.result->plan) +
         input_text(report) + slow_text(report) + levers_text(report);
}

}  // namespace plimsoll::engine
