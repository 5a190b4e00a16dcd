#include <fmt/format.h>

#include "api/advice.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/data_flags.h"
#include "cli/plan_flags.h"
#include "cli/progress_bar.h"
#include "report/half_report.h"

namespace plimsoll::engine {
namespace {

struct PrecisionFlags : CommonFlags {
  int64_t steps = 0;
  const CLI::App* command = nullptr;
};

// Counts what the pass trained on, and shows its progress.
class Pass : public FitObserver {
 public:
  explicit Pass(ProgressBar& bar) : bar_(bar) {}
  Status on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows, FitControl&) override {
    bar_.on_epoch_begin(epoch, epochs, windows);
    return {};
  }
  Status on_step(const StepEvent& event, FitControl&) override {
    samples += event.samples;
    bar_.on_step(event);
    return {};
  }
  int64_t samples = 0;

 private:
  ProgressBar& bar_;
};

// `fit` on a GPU with the flags of this command.
std::string next_command(const PrecisionFlags& flags, const HalfReport& report) {
  std::vector<TypedFlag> typed = typed_flags(*flags.command);
  std::erase_if(typed, [](const TypedFlag& flag) {
    return flag.first == "--steps" || flag.first == "--device" || flag.first == "--budget" || flag.first == "--threads";
  });
  std::vector<TypedFlag> changes = {{"--device", "gpu"}, {"--precision", "mixed_float16"}};
  if (report.any()) changes.emplace_back("--float32-layers", fmt::format("{}", fmt::join(report.float32_layers, ",")));
  changes.emplace_back("--save", "trained.keras");
  return fmt::format("plimsoll fit {} {}", flags_text({{flags.options.model, ""}}),
                     flags_text(with_changes(std::move(typed), changes)));
}

Status check(const Run& run) {
  if (!run.device().own_memory) return {};
  return fail(Error{ErrorCode::kUsage,
                    "precision looks at every value of a training, and so needs the CPU",
                    {"it tells the same of a GPU: float16 has the same range there"},
                    {"--device cpu"}});
}

Result<int> precision(PrecisionFlags& flags) {
  if (flags.options.device == "auto") flags.options.device = "cpu";
  if (!flags.options.precision.empty() && flags.options.precision != "float32")
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("precision trains in float32, and tells which layers float16 would change; it takes "
                                  "no --precision {}",
                                  flags.options.precision),
                      {},
                      {"remove --precision"}});
  flags.options.precision = "float32";
  PLIMSOLL_TRY(check_data_flags(flags.options.data));
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  PLIMSOLL_ASSIGN(const auto run, Run::open(flags.options));
  PLIMSOLL_TRY(check(*run));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_ASSIGN(HalfNodes nodes,
                  HalfNodes::of(run->model(), run->found().plan.batch.micro, run->request().graph.data));
  PLIMSOLL_TRY(run->start());
  ProgressBar bar(flags.quiet, run->budget().bytes, [&] { return run->backend().held_bytes(); });
  Pass pass(bar);
  FitOptions options;
  options.steps_per_epoch = flags.steps;
  options.seed = flags.options.seed;
  HalfRange range(run->session(), std::move(nodes));
  PLIMSOLL_TRY(range.look_at_weights());
  PLIMSOLL_ASSIGN(const FitResult fitted, run->fit(options, pass));
  bar.end_line();
  PLIMSOLL_TRY(range.look_at_weights());
  HalfReport report = half_report(run->model(), range.found());
  report.samples = pass.samples;
  report.steps = fitted.steps;
  report.command = next_command(flags, report);
  answer(flags.json ? json_text(half_json(report)) + "\n" : half_text(report));
  return 0;
}

}  // namespace

void add_precision_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<PrecisionFlags>();
  CLI::App* command = app.add_subcommand(
      "precision", "name the layers that need float32 under mixed_float16, from one pass over the data");
  flags->command = command;
  command->add_option("MODEL", flags->options.model, kModelHelp)->required();
  command->add_option("--steps", flags->steps, "look at so many optimizer steps (default: one pass over the data)")
      ->check(whole_above_zero());
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  add_data_flags(*command, flags->options.data, "the data to train on, as in fit")->required();
  command->footer("Example: plimsoll precision model.keras --data x.npy,y.npy --batch-size 128");
  actions[command] = [flags] { return precision(*flags); };
}

}  // namespace plimsoll::engine
