#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/budget_kept.h"
#include "cli/csv_log.h"
#include "cli/data_report.h"
#include "cli/fit_setup.h"
#include "cli/metric_text.h"
#include "cli/progress_bar.h"
#include "cli/run_log.h"
#include "cli/signals.h"
#include "cli/tensorboard.h"
#include "data/dataset.h"
#include "device/process_memory.h"
#include "execute/noise_scale.h"
#include "formats/file/file.h"
#include "report/profile.h"

namespace plimsoll::engine {
namespace {

// Writes the logs and draws the progress bar.
class Watcher : public FitObserver {
 public:
  Watcher(const FitFlags& flags, ProgressBar& bar, RunLog& log, CsvLog& csv, LiveRun& live, TensorBoardLog& board,
          Trace* trace, NoiseScale& noise, const Session& session)
      : flags_(flags),
        bar_(bar),
        log_(log),
        csv_(csv),
        live_(live),
        board_(board),
        trace_(trace),
        noise_(noise),
        session_(session) {}
  Status on_train_begin(int64_t steps, FitControl&) override {
    if (trace_ != nullptr) trace_->begin(steps);
    return {};
  }
  Status on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows, FitControl&) override {
    live_.on_epoch_begin(epoch, epochs);
    bar_.on_epoch_begin(epoch, epochs, windows);
    return {};
  }
  Status on_step(const StepEvent& event, FitControl&) override {
    if (trace_ != nullptr) trace_->on_step(event.step);
    live_.on_step(event);
    log_.step(event, live_.figures());
    board_.on_step(event);
    bar_.on_step(event);
    return {};
  }
  // A trace begins and ends between two steps.
  bool needs_every_step() const override { return trace_ != nullptr; }
  bool times_reading() const override { return trace_ != nullptr || board_.is_on(); }
  void on_read(double seconds) override {
    board_.on_read(seconds);
    if (trace_ != nullptr) trace_->on_read(seconds);
  }
  Status on_epoch_end(const EpochEvent& event, FitControl&) override {
    log_.write(
        ordered_object({{"event", "epoch"}, {"epoch", event.epoch + 1}, {"metrics", metrics_json(event.metrics)}}));
    csv_.epoch(event);
    bar_.on_epoch_end(event);
    return board_.on_epoch_end(event);
  }
  bool watches_micro_batches() const override { return flags_.noise_scale; }
  Status on_micro_batch(int64_t step, int64_t samples, int64_t done, int64_t window) override {
    return noise_.look(session_, step, samples, done, window);
  }
  void on_note(const std::string& text) override { bar_.on_note(text); }
  void on_checkpoint(int64_t step) override { say_when_lost(lost_by_signal(flags_, step)); }

 private:
  const FitFlags& flags_;
  ProgressBar& bar_;
  RunLog& log_;
  CsvLog& csv_;
  LiveRun& live_;
  TensorBoardLog& board_;
  Trace* trace_;
  NoiseScale& noise_;
  const Session& session_;
};

// One object per length: its plan, and what its nodes have reached in the arena.
nlohmann::ordered_json buckets_json(const LengthBuckets& buckets, const Session* session) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LengthBucket& bucket : buckets.list) {
    if (bucket.samples == 0) continue;
    list.push_back(ordered_object({{"steps", bucket.steps},
                                   {"samples", bucket.samples},
                                   {"micro_batch", bucket.plan.batch.micro},
                                   {"arena_planned_bytes", bucket.plan.arena_bytes}}));
    if (session != nullptr) list.back()["arena_peak_bytes"] = session->arena_peak_of(bucket.in_session);
  }
  return list;
}

std::string buckets_line(const LengthBuckets& buckets, Bytes peak) {
  std::vector<std::string> parts;
  for (const LengthBucket& bucket : buckets.list)
    if (bucket.samples > 0)
      parts.push_back(
          fmt::format("{} ({} samples, {})", bucket.steps, bucket.samples, format_bytes(bucket.plan.arena_bytes)));
  return fmt::format("lengths: {}; one arena, {} with all plans", fmt::join(parts, ", "), format_bytes(peak));
}

nlohmann::ordered_json plan_event(const SearchResult& found, const Budget& budget) {
  const Plan& plan = found.plan;
  nlohmann::ordered_json levers = nlohmann::ordered_json::array();
  for (const LeverUse& lever : plan.levers)
    levers.push_back(
        ordered_object({{"name", lever.name}, {"count", lever.count}, {"effect", std::string(name_of(lever.effect))}}));
  return ordered_object({{"event", "plan"},
                         {"model", plan.model},
                         {"device", plan.device},
                         {"batch", ordered_object({{"effective", plan.batch.effective},
                                                   {"micro", plan.batch.micro},
                                                   {"accumulation_steps", plan.batch.accumulation_steps()}})},
                         {"precision", plan.precision},
                         {"budget_bytes", budget.bytes},
                         {"peak_bytes", plan.peak_bytes()},
                         {"arena_bytes", plan.arena_bytes},
                         {"overhead_bytes", plan.overhead_at_peak()},
                         {"data_bytes", plan.data_bytes},
                         {"levers", levers},
                         {"step_seconds", plan.step_seconds}});
}

// At the noise scale, a run takes twice the fewest steps and twice the fewest samples; at a quarter of it five times
// the steps, at four times it five times the samples.
std::string noise_words(double samples, int64_t steps) {
  return fmt::format(
      "gradient noise scale: about {:.0f} samples, from {} steps. Batches from {:.0f} to {:.0f} are in range: smaller "
      "ones "
      "need many more steps, larger ones many more samples",
      samples, steps, std::max(1.0, samples / 4), samples * 4);
}

// Returns the file in which an interrupted run saves its weights if there is no checkpoint folder.
std::string interrupted_path(const std::string& save) {
  std::string path = save.empty() ? "plimsoll.keras" : save;
  const size_t weights = path.rfind(".weights.h5");
  return path.insert(weights != std::string::npos ? weights : path.rfind('.'), ".interrupted");
}

class FitCommand {
 public:
  explicit FitCommand(FitFlags& flags) : flags_(flags) {}

  Result<int> run() {
    PLIMSOLL_TRY(check_flags());
    PLIMSOLL_ASSIGN(const auto folder, take_checkpoint_folder(flags_));
    PLIMSOLL_ASSIGN(run_, Run::open(flags_.options));
    PLIMSOLL_TRY(check_save(flags_.save, run_->opened().file_archive(), "--save"));
    if (callbacks_.save_best)
      PLIMSOLL_TRY(check_save(callbacks_.save_best->path, run_->opened().file_archive(), "--save-best"));
    PLIMSOLL_TRY(plan());
    PLIMSOLL_TRY(run_->backend().check_room(0));  // fails for a card that is only a profile to plan for
    tell_plan();
    PLIMSOLL_TRY(run_->bind());
    if (!tools_note().empty()) message(flags_, std::string(tools_note()));
    PLIMSOLL_TRY(complete_callbacks(callbacks_, session().tallies(), run_->data().outline.validates, run_->model()));
    PLIMSOLL_TRY(try_space(flags_, callbacks_, *run_));
    PLIMSOLL_TRY(run_->load());
    PLIMSOLL_ASSIGN(RunLog log, RunLog::open(flags_.log, resuming_));
    PLIMSOLL_ASSIGN(CsvLog csv, open_csv_log());
    nlohmann::ordered_json planned = plan_event(run_->found(), run_->budget());
    if (const auto data = data_json(run_->data()); !data.is_null()) planned["data"] = data;
    if (run_->buckets() != nullptr) {
      planned["peak_bytes"] = run_->peak_bytes();
      planned["buckets"] = buckets_json(*run_->buckets(), nullptr);
    }
    log.write(planned);
    PLIMSOLL_TRY(tell_start(log));
    PLIMSOLL_ASSIGN(const FitResult result, train(log, csv));
    if (result.interrupted) return interrupted(result);
    if (!flags_.save.empty()) {
      PLIMSOLL_TRY(run_->save(flags_.save));
      message(flags_, fmt::format("saved {}", flags_.save));
    }
    nothing_to_lose();
    const nlohmann::ordered_json done = done_event(result);
    log.write(done);
    PLIMSOLL_TRY(log.failed());
    PLIMSOLL_TRY(csv.failed());
    const Status kept = check_peak(session(), run_->budget(), what_is_saved());
    tell_noise_scale();
    report_end(result, done, kept);
    if (!kept && !flags_.json) return tl::make_unexpected(kept.error());
    return kept ? 0 : exit_code(kept.error().code);
  }

 private:
  Session& session() const { return run_->session(); }

  Status check_flags() {
    PLIMSOLL_TRY(flags_.resolve(Mode::kTrain));
    if (flags_.resume && flags_.checkpoint.empty())
      return fail(Error{ErrorCode::kUsage, "--resume needs --checkpoint DIR", {}, {}});
    PLIMSOLL_TRY(check_data_flags(flags_.options.data));
    flags_.options.data.read.cache.epochs = flags_.epochs;
    if (!flags_.save.empty()) PLIMSOLL_TRY(save_format(flags_.save, "--save"));
    PLIMSOLL_ASSIGN(callbacks_, parse_callbacks(flags_));
    PLIMSOLL_ASSIGN(trace_steps_, parse_trace(flags_));
    if (flags_.options.data.buckets && (flags_.noise_scale || !flags_.profile.empty()))
      return fail(Error{ErrorCode::kUsage,
                        "--buckets cannot be combined with --profile or --noise-scale",
                        {"they look at one plan, and each length has its own"},
                        {"remove one of them"}});
    if (trace_steps_) PLIMSOLL_TRY(PathAside::create(flags_.profile_output));
    // Find out before the training, not after it, whether the files can be created.
    if (!flags_.save.empty()) PLIMSOLL_TRY(PathAside::create(flags_.save));
    if (callbacks_.save_best) PLIMSOLL_TRY(PathAside::create(callbacks_.save_best->path));
    PLIMSOLL_ASSIGN(every_, parse_every(flags_.checkpoint_every));
    return {};
  }

  // Takes the plan of the checkpoint to resume from or of --plan, or searches for one. A resumed run is compared with
  // its checkpoint before anything is planned.
  Status plan() {
    PLIMSOLL_ASSIGN(const auto given, run_->within_planning_limit([&] { return given_plan(flags_); }));
    if (given) run_->take_batch_of(given->plan);
    resuming_ = given && given->of_checkpoint;
    if (resuming_) {
      PLIMSOLL_ASSIGN(identity_, identity_of(flags_, *run_));
      PLIMSOLL_TRY(check_checkpoint(flags_.checkpoint, options()));
    }
    PLIMSOLL_TRY(run_->choose_batch());
    if (!resuming_) {
      PLIMSOLL_ASSIGN(identity_, identity_of(flags_, *run_));
    }
    if (given) return run_->plan(&*given);
    if (run_->buckets() != nullptr) return run_->plan();
    PLIMSOLL_TRY(run_->search());
    return run_->found().fits ? Status() : fail(shortage_with_remedies(flags_, *run_));
  }

  void tell_plan() const {
    for (const LeverUse& lever : run_->found().plan.levers)
      if (lever.effect == Effect::kTraining)
        message(flags_, fmt::format("changes training: {} (you allowed it)", lever.name));
    for (const CachePlan& cache : run_->data().caches)
      if (cache.rounds) message(flags_, "changes training: pixels are rounded to whole numbers (--cache-pixels uint8)");
    if (flags_.json) return;
    message(flags_, plan_line(run_->report()));
    for (const std::string& line : data_lines(run_->data())) message(flags_, line);
    if (run_->buckets() != nullptr) message(flags_, buckets_line(*run_->buckets(), run_->peak_bytes()));
  }

  Status tell_start(RunLog& log) const {
    if (resuming_) {
      PLIMSOLL_ASSIGN(const int64_t step, step_of_checkpoint(flags_.checkpoint));
      log.write(ordered_object({{"event", "resume"}, {"step", step}}));
      message(flags_, fmt::format("resuming after step {}", step));
    } else if (flags_.resume) {
      message(flags_, fmt::format("no checkpoint in {} yet: starting from the beginning", flags_.checkpoint));
    }
    if (flags_.save.empty() && flags_.checkpoint.empty() && flags_.save_best.empty())
      message(flags_, "note: without --save, --save-best or --checkpoint the trained weights are not saved");
    return {};
  }

  Result<FitResult> train(RunLog& log, CsvLog& csv) {
    const auto held = [&] { return run_->backend().held_bytes(); };
    ProgressBar bar(flags_.quiet, run_->budget().bytes, held);
    if (!run_->data().caches.empty()) bar.name_reading(run_->data().caches[0].work);
    PLIMSOLL_ASSIGN(const auto live, open_live(held, bar));
    PLIMSOLL_ASSIGN(auto board, TensorBoardLog::open({flags_.tensorboard, flags_.tensorboard_histograms,
                                                      run_->data().outline.validates, run_->budget().bytes,
                                                      run_->found().plan.arena_bytes, held, &session()}));
    if (flags_.noise_scale && run_->device().own_memory)
      return fail(Error{ErrorCode::kUsage,
                        "--noise-scale needs a device that computes in host memory",
                        {"reading all gradients of a GPU after a micro-batch is not done yet"},
                        {"--device cpu"}});
    std::optional<Trace> trace;
    if (trace_steps_) trace.emplace(session(), *trace_steps_);
    Watcher watcher(flags_, bar, log, csv, *live, board, trace ? &*trace : nullptr, noise_, session());
    Profile profile;
    if (flags_.prints_profile()) profile.attach(session());
    FitOptions options = this->options();
    options.save_best = [&](const OptimizerState& reached) { return run_->save(callbacks_.save_best->path, reached); };
    const auto start = std::chrono::steady_clock::now();
    auto fitted = run_->fit(options, watcher);
    bar.end_line();
    train_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (fitted) tell_waiting(flags_, fitted->data, run_->data(), train_seconds_);
    if (fitted && flags_.prints_profile()) tell(profile.text());
    PLIMSOLL_TRY(fitted);
    if (trace) PLIMSOLL_TRY(save_trace(*trace));
    for (const Status& written : {live->failed(), board.failed()})
      if (!written) tell(to_text(written.error()));  // the training is worth more than its curves
    return fitted;
  }

  Result<std::unique_ptr<LiveRun>> open_live(const std::function<Bytes()>& held, ProgressBar& bar) const {
    nlohmann::ordered_json plan = plan_event(run_->found(), run_->budget());
    plan.erase("event");
    return LiveRun::open({std::move(plan), run_->found().plan.model, run_->budget().bytes,
                          run_->found().plan.arena_bytes, held, [&](const std::string& text) { bar.on_note(text); },
                          flags_.prometheus});
  }

  Status save_trace(const Trace& trace) const {
    if (!trace.has_steps()) {
      message(flags_, fmt::format("no trace was written: the run made none of the steps {}", flags_.profile));
      return {};
    }
    const std::string text = json_text(trace.json(), -1) + "\n";
    PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(flags_.profile_output));
    PLIMSOLL_TRY(file.write(bytes_of_text(text)));
    PLIMSOLL_TRY(file.commit());
    message(flags_, fmt::format("trace of the steps {} written to {}: open it with ui.perfetto.dev", flags_.profile,
                                flags_.profile_output));
    return {};
  }

  nlohmann::ordered_json done_event(const FitResult& result) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    nlohmann::ordered_json done = ordered_object({{"event", "done"},
                                                  {"steps", result.steps},
                                                  {"arena_planned_bytes", arena_planned()},
                                                  {"arena_peak_bytes", session().arena_peak_bytes()},
                                                  {"overhead_measured_bytes", session().overhead_measured_bytes()},
                                                  {"process_peak_bytes", session().peak_held_bytes()},
                                                  {"process_peak_counted_by", session().counted_by()},
                                                  {"budget_bytes", run_->budget().bytes},
                                                  {"data", data_event(result.data, run_->data(), train_seconds_)},
                                                  {"seconds", seconds}});
    if (run_->buckets() != nullptr) done["buckets"] = buckets_json(*run_->buckets(), &session());
    if (const auto samples = noise_.samples()) {
      done["gradient_noise_scale"] = *samples;
      done["gradient_noise_steps"] = noise_.steps();
    }
    return done;
  }

  // The arena that the phases of this run need: with buckets, of the lengths that occur, and of the validation.
  Bytes arena_planned() const {
    if (run_->buckets() == nullptr) return run_->found().plan.arena_bytes;
    Bytes most = 0;
    for (const LengthBucket& bucket : run_->buckets()->list)
      if (bucket.samples > 0) most = std::max(most, bucket.plan.arena_bytes);
    if (run_->data().outline.validates) most = std::max(most, run_->found().plan.arena_bytes);
    return most;
  }

  void tell_noise_scale() const {
    if (!flags_.noise_scale) return;
    if (const auto samples = noise_.samples()) return message(flags_, noise_words(*samples, noise_.steps()));
    message(flags_,
            noise_.steps() == 0
                ? "gradient noise scale: unknown, because the batch ran in one piece; --micro-batch N cuts it"
                : fmt::format(
                      "gradient noise scale: unknown (windows measured: {}): more steps are needed, or the gradient "
                      "is too small to tell from its noise",
                      noise_.steps()));
  }

  FitOptions options() const {
    FitOptions options;
    options.epochs = flags_.epochs;
    options.steps_per_epoch = flags_.steps_per_epoch;
    options.seed = flags_.options.seed;
    options.checkpoint_folder = flags_.checkpoint;
    options.checkpoint_every_steps = every_;
    options.keep_checkpoints = flags_.keep_checkpoints;
    options.resume = flags_.resume;
    options.callbacks = callbacks_;
    options.best_weights_beside = flags_.save;
    options.learning_rate = flags_.options.overrides.learning_rate;
    options.stop = &stop_requested();
    options.identity = identity_.run;
    options.validation_identity = identity_.validation;
    return options;
  }

  Result<CsvLog> open_csv_log() const {
    int64_t epoch = 0;
    if (resuming_) {
      PLIMSOLL_ASSIGN(epoch, epoch_of_checkpoint(flags_.checkpoint));
    }
    return CsvLog::open(flags_.csv_log, epoch, callbacks_.reduce_lr.has_value());
  }

  Result<int> interrupted(const FitResult& result) const {
    if (!flags_.checkpoint.empty()) {
      nothing_to_lose();
      message(flags_, fmt::format("interrupted; state saved in {}: continue with --resume",
                                  checkpoint_path(flags_.checkpoint)));
    } else {
      const std::string path = interrupted_path(flags_.save);
      PLIMSOLL_TRY(run_->save(path));
      nothing_to_lose();
      message(flags_, fmt::format("interrupted after step {}; weights saved in {}", result.optimizer.iteration, path));
    }
    return exit_code(ErrorCode::kInterrupted);
  }

  std::string what_is_saved() const {
    std::vector<std::string> places;
    if (!flags_.save.empty()) places.push_back(flags_.save);
    if (!flags_.checkpoint.empty()) places.push_back(checkpoint_path(flags_.checkpoint));
    return places.empty() ? "" : fmt::format("the training is saved in {}", fmt::join(places, " and "));
  }

  void report_end(const FitResult& result, const nlohmann::ordered_json& done, const Status& kept) const {
    if (flags_.json) {
      nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
      if (!result.history.empty()) metrics = metrics_json(result.history.back().metrics);
      nlohmann::ordered_json json = done;
      json.erase("event");
      json["metrics"] = metrics;
      if (!kept) json.update(error_json(kept.error()));
      answer(json_text(json) + "\n");
      return;
    }
    if (session().arena_peak_bytes() == 0 && result.stopped_early)
      return message(flags_,
                     "nothing left to train: early stopping ended the run of this checkpoint; to continue it, give "
                     "--early-stopping a larger patience");
    if (session().arena_peak_bytes() == 0)
      return message(flags_, fmt::format("nothing left to train: the checkpoint has completed all {} epochs; to "
                                         "continue, give a larger --epochs",
                                         flags_.epochs));
    message(flags_,
            fmt::format("arena: {} planned, {} measured; {}", format_bytes(done["arena_planned_bytes"].get<Bytes>()),
                        format_bytes(done["arena_peak_bytes"].get<Bytes>()), peak_text(session(), run_->budget())));
  }

  FitFlags& flags_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Run> run_;
  CallbackOptions callbacks_;
  FitIdentity identity_;
  std::optional<StepRange> trace_steps_;
  NoiseScale noise_;
  double train_seconds_ = 0;
  bool resuming_ = false;
  int64_t every_ = 0;
};

}  // namespace

void add_fit_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<FitFlags>();
  CLI::App* command = app.add_subcommand("fit", "train a model inside the budget and save it");
  flags->command = command;
  command->add_option("MODEL", flags->options.model, kModelHelp)->required();
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  add_data_flags(*command, flags->options.data, data_help(true))->required();
  add_fit_flags(*command, *flags);
  command->footer(
      "Example: plimsoll fit model.keras --data x.npy,y.npy --epochs 3 --batch-size 128 --budget 256MiB --save "
      "out.keras");
  actions[command] = [flags] {
    install_signal_handlers(
        "interrupted: finishing this micro-batch, then saving; a second Ctrl-C ends at once without saving",
        flags->json);
    say_when_lost(lost_by_signal(*flags, std::nullopt));
    return FitCommand(*flags).run();
  };
}

}  // namespace plimsoll::engine
