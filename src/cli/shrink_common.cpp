// What all ways of `plimsoll shrink` do alike: open the model, price it, evaluate and train the result, report.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>

#include "api/planning_limit.h"
#include "api/run_data.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/budget_kept.h"
#include "cli/metric_text.h"
#include "cli/progress_bar.h"
#include "cli/shrink.h"
#include "device/process_memory.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

void add_shrink_flags(CLI::App& command, ShrinkFlags& flags) {
  command.add_option("MODEL", flags.options.model, kModelHelp)->required();
  command.add_option("-o,--output", flags.output, "write the smaller model to this .keras file")->required();
  add_model_flags(command, flags);
  add_training_flags(command, flags);
}

void add_tuning_flags(CLI::App& command, ShrinkFlags& flags) {
  add_data_flags(command, flags.options.data, "data to evaluate and train with: " + data_help(true));
  command.add_option("--epochs", flags.epochs, "train the smaller model for this many epochs on --data")
      ->check(whole_from_zero())
      ->capture_default_str();
  command.add_option("--steps-per-epoch", flags.steps_per_epoch, "steps per epoch (default: all of the data)")
      ->check(whole_above_zero());
  command.add_option("--seed", flags.options.seed, "seed of shuffling and dropout")->capture_default_str();
}

namespace {

// What the process holds now counts against the budget of the next run.
RunOptions next_run(const ShrinkFlags& flags, const std::string& path, Mode mode) {
  malloc_trim(0);
  RunOptions options = flags.options;
  options.model = path;
  options.weights.clear();
  options.mode = mode;
  options.overrides.needs_loss = mode != Mode::kPredict;
  options.overrides.needs_training = mode == Mode::kTrain;
  options.resident_before = std::max<Bytes>(0, resident_bytes() - flags.resident_at_start);
  return options;
}

class TuneObserver : public FitObserver {
 public:
  explicit TuneObserver(ProgressBar& bar) : bar_(bar) {}
  Status on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows, FitControl&) override {
    bar_.on_epoch_begin(epoch, epochs, windows);
    return {};
  }
  Status on_step(const StepEvent& event, FitControl&) override {
    bar_.on_step(event);
    return {};
  }
  Status on_epoch_end(const EpochEvent& event, FitControl&) override {
    bar_.on_epoch_end(event);
    return {};
  }
  void on_note(const std::string& text) override { bar_.on_note(text); }

 private:
  ProgressBar& bar_;
};

std::string metrics_line(std::span<const Metric> metrics) {
  std::string text;
  for (const Metric& metric : metrics)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", metric.name,
                        value_text(metric, [](double value) { return fmt::format("{:.4f}", value); }));
  return text;
}

// The weights, their slices, and the importance of each must fit beside what the process holds.
Status check_room(const ShrinkFlags& flags, const Model& model, bool with_state) {
  const std::string& device = flags.options.device;
  if (!flags.options.budget || *flags.options.budget == 0 || (device != "cpu" && device != "auto")) return {};
  const Bytes values = 2 * held_bytes(model, with_state) + held_bytes(model, false);
  const Bytes needed = resident_bytes() + values;
  if (needed <= *flags.options.budget) return {};
  return fail(Error{ErrorCode::kDoesNotFit,
                    fmt::format("shrinking this model needs {}, more than the budget of {}", format_bytes(needed),
                                format_bytes(*flags.options.budget)),
                    {fmt::format("{} for its weights and their slices, {} for the process", format_bytes(values),
                                 format_bytes(resident_bytes()))},
                    {fmt::format("--budget {}MiB", (needed + kMiB - 1) / kMiB)}});
}

}  // namespace

Result<Opened> open_to_shrink(ShrinkFlags& flags) {
  PLIMSOLL_TRY(check_ending(flags.output, ".keras", "--output"));
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  PLIMSOLL_TRY(check_data_flags(flags.options.data));
  if (flags.epochs > 0 && flags.options.data.data.empty())
    return fail(Error{ErrorCode::kUsage, "--epochs needs --data", {}, {"--data x.npy,y.npy"}});
  PLIMSOLL_TRY(PathAside::create(flags.output));  // find out now whether the file can be created
  if (flags.resident_at_start == 0) flags.resident_at_start = resident_bytes();
  const RunOptions& options = flags.options;
  return within_limit(options, reading_limit(options), [&]() -> Result<Opened> {
    ModelOptions overrides = options.overrides;
    overrides.needs_loss = overrides.needs_training = false;
    PLIMSOLL_ASSIGN(OpenModel open, open_model(options.model, overrides, options.weights));
    PLIMSOLL_ASSIGN(Description description, description_of(open));
    overrides = options.overrides;
    PLIMSOLL_TRY(check_room(flags, open.model, is_compiled(description)));
    Opened opened{std::move(open.archive), {}, {}};
    // A loss or an optimizer that Plimsoll does not have need not keep the model from being shrunk.
    auto held = hold(description, overrides, opened.source());
    if (!held && held.error().code == ErrorCode::kUnsupported && flags.epochs == 0) {
      message(flags, "note: " + held.error().what + "; its training is not planned, and its optimizer starts anew");
      overrides.needs_loss = overrides.needs_training = false;
      held = hold(std::move(description), overrides, opened.source());
    }
    PLIMSOLL_TRY(held);
    opened.held = std::move(*held);
    PLIMSOLL_ASSIGN(opened.bytes, measured_bytes(opened.held, opened.source(), flags.output));
    for (const std::string& note : opened.held.notes) message(flags, "note: " + note);
    return opened;
  });
}

Result<ShrinkPrice> price_inside(const ShrinkFlags& flags, const HeldModel& held, const KerasArchive* source) {
  RunOptions options = flags.options;
  options.limit_process = false;  // this work has its own limit
  return within_limit(flags.options, reading_limit(flags.options), [&]() -> Result<ShrinkPrice> {
    if (auto price = price_shrunk(held, source, options);
        price || options.data.data.empty() || price.error().code != ErrorCode::kDataShape)
      return price;
    options.data = DataOptions();
    return price_shrunk(held, source, options);
  });
}

Result<std::vector<Metric>> evaluate_file(const ShrinkFlags& flags, const std::string& path) {
  RunOptions options = next_run(flags, path, Mode::kEvaluate);
  if (!options.data.validation_data.empty()) options.data.data = options.data.validation_data;
  options.note = nullptr;
  PLIMSOLL_ASSIGN(const auto run, Run::open(std::move(options)));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  return run->evaluate(&stop_requested(), {});
}

Status tune_file(const ShrinkFlags& flags, const std::string& path, int64_t epochs) {
  PLIMSOLL_ASSIGN(const auto run, Run::open(next_run(flags, path, Mode::kTrain)));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  ProgressBar bar(flags.quiet, run->budget().bytes, [&] { return run->backend().held_bytes(); });
  TuneObserver observer(bar);
  FitOptions options;
  options.epochs = epochs;
  options.steps_per_epoch = flags.steps_per_epoch;
  options.seed = flags.options.seed;
  options.stop = &stop_requested();
  auto fitted = run->fit(options, observer);
  bar.end_line();
  PLIMSOLL_TRY(fitted);
  PLIMSOLL_TRY(run->save(path));
  if (fitted->interrupted)
    return fail(ErrorCode::kInterrupted, fmt::format("interrupted; {} holds the model as far as it was trained", path));
  return check_peak(run->session(), run->budget(), fmt::format("{} was written", path));
}

Importance importance_of(const std::string& name) {
  return name == "loss" ? Importance::kLoss : name == "batchnorm" ? Importance::kBatchNorm : Importance::kMagnitude;
}

std::string groups_text(const std::vector<GroupReport>& groups) {
  std::string text;
  for (const GroupReport& group : groups)
    text += group.locked.empty() ? fmt::format("{}: {} -> {}\n", group.layers, group.before, group.after)
                                 : fmt::format("{}: {} stay: {}\n", group.layers, group.before, group.locked);
  return text;
}

nlohmann::ordered_json groups_json(const std::vector<GroupReport>& groups) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const GroupReport& group : groups) {
    list.push_back(ordered_object({{"layers", group.layers}, {"before", group.before}, {"after", group.after}}));
    if (!group.locked.empty()) list.back()["stays_because"] = group.locked;
  }
  return list;
}

Error no_group_can_be_cut(const std::vector<GroupReport>& groups, const std::string& flag) {
  Error error{ErrorCode::kUnsupported, fmt::format("{}: no channel of this model can leave", flag), {}, {}};
  if (groups.empty()) error.fact("no layer of it has filters or units of its own");
  for (const GroupReport& group : groups)
    error.fact(group.locked.empty()
                   ? fmt::format("{}: {} channels; so few are kept by the rounding", group.layers, group.before)
                   : fmt::format("{}: {}", group.layers, group.locked));
  if (flag != "--width") error.remedy("plimsoll shrink resize --width 0.5   also cuts through LayerNormalization");
  return error.remedy("plimsoll shrink resize --input-size N, --kernel N or --drop-layer NAME");
}

double estimated_bytes(const Opened& opened, const HeldModel& made) {
  const Bytes excess = file_bytes(opened.held, opened.source()).without_state - opened.bytes.without_state;
  // Each dataset begins at a multiple of this.
  constexpr Bytes kPadding = 64;
  const auto padding = kPadding * static_cast<Bytes>(made.model.weights().size() + 2);
  return static_cast<double>(file_bytes(made, opened.source()).without_state - excess + padding);
}

int report_shrunk(const ShrinkFlags& flags, const ShrinkPrice& before, ShrinkPrice after, const Figures& figures,
                  nlohmann::ordered_json more, const std::string& text) {
  std::error_code failed;
  if (const auto bytes = std::filesystem::file_size(flags.output, failed); !failed)
    after.file.whole = static_cast<Bytes>(bytes);  // training may have added the optimizer's state
  if (flags.json) {
    more["file"] = flags.output;
    more["before"] = price_json(before);
    more["after"] = price_json(after);
    if (!figures.before.empty()) more["before"]["metrics"] = metrics_json(figures.before);
    if (!figures.after.empty()) more["after"]["metrics"] = metrics_json(figures.after);
    answer(json_text(more) + "\n");
    return 0;
  }
  answer(text + price_table(before, after));
  if (!figures.before.empty()) answer(fmt::format("before: {}\n", metrics_line(figures.before)));
  if (!figures.after.empty()) answer(fmt::format("after:  {}\n", metrics_line(figures.after)));
  message(flags, fmt::format("written: {}", flags.output));
  return 0;
}

}  // namespace plimsoll::engine
