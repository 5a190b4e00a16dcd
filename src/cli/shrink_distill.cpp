// plimsoll shrink distill: trains a small model on the logits of a large one.
#include <fmt/format.h>

#include "api/distill.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/budget_kept.h"
#include "cli/data_flags.h"
#include "cli/metric_text.h"
#include "cli/shrink.h"
#include "cli/signals.h"

namespace plimsoll::engine {
namespace {

struct DistillFlags : CommonFlags {
  DistillOptions distill;
};

class EpochLines final : public FitObserver {
 public:
  explicit EpochLines(const DistillFlags& flags) : flags_(flags) {}

  Status on_epoch_begin(int64_t, int64_t, int64_t windows, FitControl&) override {
    windows_ = windows;
    return {};
  }
  Status on_step(const StepEvent& event, FitControl&) override {
    if (!flags_.quiet && can_redraw()) draw(fmt::format("\rstep {}/{}", event.window + 1, windows_));
    return {};
  }
  Status on_epoch_end(const EpochEvent& event, FitControl&) override {
    if (!flags_.quiet && can_redraw()) draw("\r\x1b[K");
    message(flags_, fmt::format("epoch {}/{}: {:.1f} s, loss of labels and teacher {:.4f}", event.epoch + 1,
                                event.epochs, event.seconds, event.metrics.empty() ? 0 : event.metrics[0].value));
    return {};
  }
  void on_note(const std::string& text) override { message(flags_, text); }

 private:
  const DistillFlags& flags_;
  int64_t windows_ = 0;
};

nlohmann::ordered_json json_of(const DistillReport& r, const std::string& output) {
  return ordered_object({{"output", output},
                         {"samples", r.samples},
                         {"classes", r.classes},
                         {"steps", r.fitted.steps},
                         {"teacher_logits_bytes", r.cache_bytes},
                         {"teacher_logits_reused", r.cache_reused},
                         {"teacher_planned_bytes", r.teacher_planned},
                         {"student_planned_bytes", r.student_planned},
                         {"process_peak_bytes", r.peak_bytes},
                         {"budget_bytes", r.budget_bytes},
                         {"metrics", metrics_json(r.metrics)}});
}

Result<int> distill_command(DistillFlags& flags) {
  DistillOptions& o = flags.distill;
  PLIMSOLL_TRY(check_ending(o.output, ".keras", "-o"));
  if (!o.cache.empty()) PLIMSOLL_TRY(check_ending(o.cache, ".npy", "--cache"));
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  flags.options.limit_process = false;  // several plans are made one after the other in this process
  o.run = flags.options;
  o.stop = &stop_requested();
  EpochLines lines(flags);
  o.observer = &lines;
  if (!flags.quiet && can_redraw())
    o.teacher_progress = [](int64_t done, int64_t samples) {
      draw(fmt::format("\rthe teacher's logits: {}/{} samples{}", done, samples, done == samples ? "\n" : ""));
    };
  PLIMSOLL_ASSIGN(const DistillReport report, distill(o));
  if (report.fitted.interrupted)
    return fail(Error{ErrorCode::kNotSaved,
                      fmt::format("interrupted after {} steps; {} was not written", report.fitted.steps, o.output),
                      {fmt::format("the teacher's logits are in {}", report.cache)},
                      {"the same command again reads them instead of the teacher"}});
  nothing_to_lose();
  if (flags.json) {
    answer(json_text(json_of(report, o.output)) + "\n");
  } else {
    answer(fmt::format("{}: {} steps on {} samples\n", o.output, report.fitted.steps, report.samples));
    answer(fmt::format("the teacher's logits: {} on disk{}\n", format_bytes(report.cache_bytes),
                       report.cache_reused ? ", of an earlier run"
                                           : fmt::format("; its plan held {}", format_bytes(report.teacher_planned))));
    answer(fmt::format("the student's plan: {}, without the teacher\n", format_bytes(report.student_planned)));
    const auto number = [](double value) { return fmt::format("{:.6g}", value); };
    for (const Metric& metric : report.metrics)
      answer(fmt::format("{}: {}\n", metric.name, value_text(metric, number)));
  }
  message(flags,
          fmt::format("process peak: {} of {}", format_bytes(report.peak_bytes), format_bytes(report.budget_bytes)));
  if (report.budget_bytes > 0)
    PLIMSOLL_TRY(check_peak(report.peak_bytes, report.budget_bytes, o.output + " was written"));
  return 0;
}

}  // namespace

void add_shrink_distill(CLI::App& shrink, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<DistillFlags>();
  CLI::App* command = shrink.add_subcommand("distill", "train a small model on the logits of a large one");
  DistillOptions& o = flags->distill;
  command->add_option("TEACHER", o.teacher, "the trained model that teaches")->required();
  command->add_option("--student", flags->options.model, "the model that learns: compiled, with one output of classes")
      ->required();
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  command->add_option("--data", flags->options.data.data, data_help(true))->required();
  command->add_option("--validation-data", flags->options.data.validation_data,
                      "data on which the student is evaluated at the end, in the form of --data");
  add_reading_flags(*command, flags->options.data.read);
  command->add_option("-o,--output", o.output, "write the student to this .keras file")->required();
  command->add_option("--epochs", o.epochs, "passes over the data")->check(whole_above_zero())->capture_default_str();
  command->add_option("--temperature", o.temperature, "the logits are divided by this before the softmax")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option("--alpha", o.alpha,
                   "weight of the labels' loss; the teacher's has 1 - alpha, times temperature squared")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--cache", o.cache,
                      "keep the teacher's logits in this .npy file, and read them from it in later runs");
  command->add_option("--shuffle", flags->options.data.shuffle, "new order in each epoch: true or false")
      ->capture_default_str();
  command->add_option("--seed", flags->options.seed, "for the order of the data, dropout and initial weights")
      ->capture_default_str();
  command->footer(
      "Example: plimsoll shrink distill teacher.keras --student student.keras --data x.npy,y.npy --epochs 5 -o "
      "small.keras");
  actions[command] = [flags] {
    install_signal_handlers("interrupted: finishing this micro-batch; a second Ctrl-C ends at once", flags->json);
    return distill_command(*flags);
  };
}

}  // namespace plimsoll::engine
