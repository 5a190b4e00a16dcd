#include "cli/plan_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/data_flags.h"

namespace plimsoll::engine {
namespace {

// Returns whether the environment set the flag. It will do so for the next command, too.
bool from_environment(const CLI::Option& option) {
  const char* value = option.get_envname().empty() ? nullptr : std::getenv(option.get_envname().c_str());
  return value != nullptr && option.results().size() == 1 && option.results()[0] == value;
}

// Splits "8,16,32". Anything else is left to the flag's own check.
std::vector<int64_t> several_batches(const std::string& text) {
  std::vector<int64_t> list;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const auto number = read_number<int64_t>(text.substr(at, comma - at));
    if (!number || *number < 1) return {};
    list.push_back(*number);
    at = comma + 1;
  }
  return list.size() > 1 ? list : std::vector<int64_t>();
}

bool only_prints(const std::string& name) {
  for (const char* flag : {"json", "quiet", "html", "svg", "memory-viz", "save", "list", "details", "brief", "help"})
    if (name == flag) return true;
  return false;
}

}  // namespace

void PlanFlags::add(CLI::App& app) {
  command = &app;
  app.add_option("MODEL", options.model, kModelHelp);
  add_model_flags(app, *this);
  add_training_flags(app, *this);
  add_data_flags(app, options.data, "plan for these data: their dtypes and their last, smaller batch");
  app.add_option("--epochs", options.data.read.cache.epochs,
                 "number of passes over the data: says whether caching pictures pays")
      ->check(whole_above_zero());
  app.add_option("--max-batch", max_batch, "also show the largest power of two that fits, up to this batch")
      ->check(whole_above_zero());
  app.add_option("--scale-filters", scale_filters,
                 "plan for the model with this share of the filters and units of its hidden layers: 0.5")
      ->check(above_zero());
  app.add_option("--max-kernel", options.what_if.largest_kernel,
                 "plan for the model with kernels of convolutions no larger than this: 3")
      ->check(whole_above_zero());
  app.add_option("--without-layer", options.what_if.without_layers, "plan for the model without these layers")
      ->delimiter(',');
  app.add_flag("--brief", brief, "print only the plan: no other batches and precisions, no remedies");
  app.add_flag("--details", details, "also print all layers and phases of the plan");
  app.add_option("--html", html, "draw the plan: write one page that any browser shows to this file");
  app.add_option("--svg", svg, "write a picture of the step's memory to this file");
  app.add_option("--memory-viz", memory_viz,
                 "write the plan's memory over time to this file, for PyTorch's page pytorch.org/memory_viz");
  app.add_option("--save", save, "write the plan to this file, for fit --plan");
  app.add_flag("--list", list, "list the built-in models");
  app.footer(
      "Example: plimsoll plan model.keras --batch-size 128 --budget 256MiB\n"
      "         plimsoll plan model.keras --batch-size 8,16,32 --device 8g --html plan.html\n"
      "         plimsoll plan model.keras --batch-size 64 --device all");
}

Status PlanFlags::resolve_plan() {
  batches = several_batches(batch_text);
  std::sort(batches.rbegin(), batches.rend());
  if (!batches.empty()) batch_text = fmt::format("{}", batches.front());
  all_devices = options.device == "all";
  if (all_devices) options.device = "h200-141g";  // the model is opened for a card with every precision
  options.what_if.filters = scale_filters;
  PLIMSOLL_TRY(resolve(Mode::kTrain));
  options.what_if.input_shape = options.overrides.input_shape;
  std::vector<std::string> names;  // each once: a layer cannot be removed twice
  for (const std::string& layer : options.what_if.without_layers)
    if (std::find(names.begin(), names.end(), layer) == names.end()) names.push_back(layer);
  options.what_if.without_layers = std::move(names);
  PLIMSOLL_TRY(check_data_flags(options.data));
  options.find_least = true;
  return {};
}

std::vector<std::pair<std::string, std::string>> typed_flags(const CLI::App& command) {
  std::vector<std::pair<std::string, std::string>> flags;
  for (const CLI::Option* option : command.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || option->count() == 0 || only_prints(names[0]) || from_environment(*option)) continue;
    const std::vector<std::string>& values = option->results();
    std::string value;
    if (option->get_delimiter() != '\0')
      value = fmt::format("{}", fmt::join(values, ","));
    else if (!values.empty() && option->get_items_expected_max() > 0)
      value = values.back();
    flags.emplace_back("--" + names[0], value);
  }
  return flags;
}

}  // namespace plimsoll::engine
