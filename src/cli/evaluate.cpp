#include <fmt/format.h>
#include <unistd.h>

#include "api/lite_predict.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/budget_kept.h"
#include "cli/command.h"
#include "cli/data_flags.h"
#include "cli/lite_commands.h"
#include "cli/metric_text.h"
#include "cli/signals.h"
#include "device/process_memory.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kStopping = "interrupted: stopping after this batch; a second Ctrl-C ends at once";

struct InferenceFlags : CommonFlags {
  std::string output;
};

// Opens, plans and binds a run, and loads the weights of the file.
Result<std::unique_ptr<Run>> start(InferenceFlags& flags, Mode mode) {
  PLIMSOLL_TRY(flags.resolve(mode));
  PLIMSOLL_ASSIGN(auto run, Run::open(flags.options));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->bind());
  if (!tools_note().empty()) message(flags, std::string(tools_note()));
  PLIMSOLL_TRY(run->load());
  return run;
}

// Redraws "1280/10000 samples" on a terminal.
void show_progress(const CommonFlags& flags, int64_t done, int64_t samples) {
  if (flags.quiet || !can_redraw()) return;
  draw(fmt::format("\r{}/{} samples{}", done, samples, done == samples ? "\n" : ""));  // the line never gets shorter
}

Result<int> evaluate_command(InferenceFlags& flags) {
  if (is_lite_file(flags.options.model)) return evaluate_lite(flags);
  PLIMSOLL_ASSIGN(const auto run, start(flags, Mode::kEvaluate));
  PLIMSOLL_ASSIGN(const auto metrics, run->evaluate(&stop_requested(), [&](int64_t done) {
    show_progress(flags, done, run->data().source->samples());
  }));
  nothing_to_lose();
  const Status kept = check_peak(run->session(), run->budget(), "");
  if (flags.json) {
    const auto named = metrics_json(std::span(metrics).subspan(1));
    nlohmann::ordered_json found = ordered_object({{"loss", metrics[0].value}, {"metrics", named}});
    if (const auto& skipped = run->model().skipped_metrics(); !skipped.empty()) found["skipped_metrics"] = skipped;
    if (!kept) found.update(error_json(kept.error()));
    answer(json_text(found) + "\n");
    return kept ? 0 : exit_code(kept.error().code);
  }
  const auto number = [](double value) { return fmt::format("{:.6g}", value); };
  for (const Metric& metric : metrics) answer(fmt::format("{}: {}\n", metric.name, value_text(metric, number)));
  message(flags, peak_text(run->session(), run->budget()));
  PLIMSOLL_TRY(kept);
  return 0;
}

// One file per output of the model.
struct PredictionFiles {
  std::vector<NpyWriter> writers;
  std::vector<std::string> paths;

  std::string names() const { return fmt::format("{}", fmt::join(paths, ", ")); }
};

Result<PredictionFiles> create_files(const std::string& output, const Run& run) {
  PredictionFiles files;
  const auto& ports = run.model().outputs();
  for (const Port& port : ports) {
    std::vector<int64_t> dims = {run.data().source->samples()};
    dims.insert(dims.end(), port.sample.dims.begin(), port.sample.dims.end());
    // Several outputs: OUT.npy becomes OUT.NAME.npy.
    std::string path = output;
    if (ports.size() > 1) path.insert(path.rfind(".npy"), "." + port.name);
    PLIMSOLL_ASSIGN(NpyWriter writer, NpyWriter::create(path, run.request().graph.precision.variables, dims));
    files.writers.push_back(std::move(writer));
    files.paths.push_back(std::move(path));
  }
  return files;
}

Result<int> predict_command(InferenceFlags& flags) {
  PLIMSOLL_TRY(check_ending(flags.output, ".npy", "--output"));
  if (is_lite_file(flags.options.model)) return predict_lite(flags, flags.output);
  PLIMSOLL_ASSIGN(const auto run, start(flags, Mode::kPredict));
  PLIMSOLL_ASSIGN(PredictionFiles files, create_files(flags.output, *run));
  const int64_t samples = run->data().source->samples();
  Status predicted = run->predict(
      &stop_requested(),
      [&](size_t output, const TensorView& view) {
        return files.writers[output].write(
            {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.type.bytes())});
      },
      [&](int64_t done) { show_progress(flags, done, samples); });
  if (!predicted && predicted.error().code == ErrorCode::kInterrupted)
    predicted.error().what += fmt::format("; {} was not written", files.names());
  PLIMSOLL_TRY(predicted);
  for (NpyWriter& writer : files.writers) PLIMSOLL_TRY(writer.commit());
  nothing_to_lose();
  message(flags,
          fmt::format("{} predictions in {}; {}", samples, files.names(), peak_text(run->session(), run->budget())));
  PLIMSOLL_TRY(check_peak(run->session(), run->budget(), fmt::format("{} was written", files.names())));
  return 0;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* what, const std::shared_ptr<InferenceFlags>& flags) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("MODEL", flags->options.model, kModelHelp)->required();
  add_model_flags(*command, *flags);
  command
      ->add_option("--batch-size", flags->batch_text,
                   "samples processed at once, or auto; fewer if the budget requires it")
      ->capture_default_str();
  add_reading_flags(*command, flags->options.data.read);
  return command;
}

}  // namespace

void add_evaluate_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<InferenceFlags>();
  CLI::App* command = add_command(app, "evaluate", "compute loss and metrics on data, inside the budget", flags);
  command->add_option("--data", flags->options.data.data, data_help(true))->required();
  command->footer("Example: plimsoll evaluate out.keras --data x_test.npy,y_test.npy --json");
  actions[command] = [flags] {
    install_signal_handlers(kStopping, flags->json);
    return evaluate_command(*flags);
  };
}

void add_predict_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<InferenceFlags>();
  CLI::App* command =
      add_command(app, "predict", "write predictions in the order of the data, inside the budget", flags);
  command->add_option("--data", flags->options.data.data, data_help(false))->required();
  command->add_option("--output", flags->output, "write the predictions to this .npy file")->required();
  command->footer("Example: plimsoll predict out.keras --data x_test.npy --output predictions.npy");
  actions[command] = [flags] {
    install_signal_handlers(kStopping, flags->json);
    return predict_command(*flags);
  };
}

}  // namespace plimsoll::engine
