#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/checked.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/csv_log.h"
#include "cli/fit_setup.h"
#include "cli/progress_bar.h"
#include "cli/run_log.h"
#include "cli/signals.h"
#include "cli/within_budget.h"
#include "device/process_memory.h"
#include "formats/array_formats.h"
#include "formats/file/file.h"
#include "formats/json/parse.h"
#include "formats/limits.h"
#include "report/profile.h"
#include "search/given_plan.h"

namespace plimsoll {
namespace {

// The observer that writes the log and draws the bar.
class Watcher : public FitObserver {
 public:
  Watcher(const FitFlags& flags, ProgressBar& bar, RunLog& log, CsvLog& csv)
      : flags_(flags), bar_(bar), log_(log), csv_(csv) {}
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows) override {
    bar_.on_epoch_begin(epoch, epochs, windows);
  }
  void on_step(const StepEvent& event) override {
    log_.step(event);
    bar_.on_step(event);
  }
  void on_epoch_end(const EpochEvent& event) override {
    nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
    for (const Metric& metric : event.metrics) metrics[metric.name] = metric.value;
    log_.write(ordered_object({{"event", "epoch"}, {"epoch", event.epoch + 1}, {"metrics", metrics}}));
    csv_.epoch(event);
    bar_.on_epoch_end(event);
  }
  void on_note(const std::string& text) override { bar_.on_note(text); }
  void on_checkpoint(int64_t step) override { say_when_lost(lost_by_signal(flags_, step)); }

 private:
  const FitFlags& flags_;
  ProgressBar& bar_;
  RunLog& log_;
  CsvLog& csv_;
};

Result<Plan> read_plan(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  const auto no_plan = [&](std::string_view what) {
    return fail(Error{ErrorCode::kBadPlan,
                      fmt::format("{}: {}, expected a plan saved by plimsoll plan --save", path, what),
                      {},
                      {"plimsoll plan ... --save FILE"}});
  };
  if (file.size() > limits::kJsonBytes) return no_plan(fmt::format("{} of something", format_bytes(file.size())));
  std::string text(static_cast<size_t>(file.size()), '\0');
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(text))));
  const auto json = parse_json(text, path, ErrorCode::kBadPlan);
  if (!json) return no_plan("not JSON");
  if (!json->is_object() || !json->contains("format")) return no_plan("JSON of something else");
  auto plan = plan_from_json(*json);
  if (!plan) plan.error().what = fmt::format("{}: {}", path, plan.error().what);
  return plan;
}

// A plan made before: of the checkpoint to go on from, or saved by `plan`.
Result<std::optional<GivenPlan>> given_plan(const FitFlags& flags) {
  const bool resuming = flags.resume && holds_checkpoint(flags.checkpoint);
  if (!resuming && flags.plan.empty()) return std::nullopt;
  GivenPlan given{{}, resuming ? checkpoint_path(flags.checkpoint) : flags.plan, resuming};
  PLIMSOLL_ASSIGN(given.plan, resuming ? plan_of_checkpoint(flags.checkpoint) : read_plan(flags.plan));
  PLIMSOLL_TRY(check_plan(given));
  return given;
}

Result<SearchResult> accept(const FitFlags& flags, const GivenPlan& given, const SearchRequest& request) {
  PLIMSOLL_ASSIGN(AcceptedPlan accepted, accept_plan(given, request));
  if (!accepted.note.empty()) message(flags, accepted.note);
  return std::move(accepted.result);
}

Result<SearchResult> search_plan(SearchRequest request) {
  request.find_least = false;
  PLIMSOLL_ASSIGN(SearchResult result, search(request));
  if (!result.fits) return fail(does_not_fit(request, result));
  return result;
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

// Where an interrupted run leaves its weights when there is no checkpoint folder.
std::string interrupted_path(const std::string& save) {
  std::string path = save.empty() ? "plimsoll.keras" : save;
  return path.insert(path.rfind(".keras"), ".interrupted");
}

class FitCommand {
 public:
  explicit FitCommand(FitFlags& flags) : flags_(flags) {}

  Result<int> run() {
    const auto start = std::chrono::steady_clock::now();
    PLIMSOLL_TRY(check_flags());
    PLIMSOLL_ASSIGN(const auto folder, take_checkpoint_folder(flags_));
    PLIMSOLL_ASSIGN(OpenModel open, open_model_for(flags_, flags_.data, Split::kTrain));
    PLIMSOLL_ASSIGN(const auto backend, open_backend(flags_.job));
    PLIMSOLL_ASSIGN(const Sources sources, open_sources(flags_, open.model));
    budget_ = choose_budget(flags_.job, backend->device().info());
    PLIMSOLL_ASSIGN(auto given, within_budget(flags_.job, planning_budget(budget_, backend->device()),
                                              [&] { return given_plan(flags_); }));
    if (given) take_batch(given->plan, sources.samples());
    const bool resuming = given && given->of_checkpoint;
    if (resuming) {
      PLIMSOLL_ASSIGN(identity_, identity_of(flags_, open, sources));
      PLIMSOLL_TRY(check_checkpoint(flags_.checkpoint, options()));
    }
    PLIMSOLL_ASSIGN(const TrainingRequest training,
                    training_request(flags_, flags_, open.model, backend->device(), sources, budget_));
    flags_.job.batch_size = training.batch_size;
    if (!resuming) {
      PLIMSOLL_ASSIGN(identity_, identity_of(flags_, open, sources));
    }
    const SearchRequest& request = training.request;
    PLIMSOLL_ASSIGN(SearchResult found, within_budget(flags_.job, planning_budget(budget_, backend->device()), [&] {
                      return given ? accept(flags_, *given, request) : search_plan(request);
                    }));
    given.reset();
    PLIMSOLL_TRY(backend->check_room(0));  // a card that can only be planned for has none
    for (const LeverUse& lever : found.plan.levers)
      if (lever.effect == Effect::kTraining)
        message(flags_, fmt::format("changes training: {} (you allowed it)", lever.name));
    const PlanReport report{&open.model, open.file, backend->device().info(), budget_.bytes, budget_.margin, &found};
    if (!flags_.quiet && !flags_.json) tell(plan_text(report) + "\n");

    PLIMSOLL_ASSIGN(const auto session, Session::create(open.model, found.plan, *backend, request.graph));
    if (!tools_note().empty()) message(flags_, std::string(tools_note()));
    PLIMSOLL_TRY(complete_callbacks(callbacks_, session->tallies(), sources.validates, session->model()));
    PLIMSOLL_TRY(try_space(flags_, callbacks_, *session, open));
    PLIMSOLL_ASSIGN(const OptimizerState state, first_weights(*session, open));
    PLIMSOLL_ASSIGN(RunLog log, RunLog::open(flags_.log, resuming));
    PLIMSOLL_ASSIGN(CsvLog csv, open_csv_log(resuming));
    log.write(plan_event(found, budget_));
    ProgressBar bar(flags_.quiet, budget_.bytes, [&] { return backend->held_bytes(); });
    Watcher watcher(flags_, bar, log, csv);
    if (resuming) {
      PLIMSOLL_ASSIGN(const int64_t step, step_of_checkpoint(flags_.checkpoint));
      log.write(ordered_object({{"event", "resume"}, {"step", step}}));
      message(flags_, fmt::format("resuming after step {}", step));
    } else if (flags_.resume) {
      message(flags_, fmt::format("no checkpoint in {} yet: starting from the beginning", flags_.checkpoint));
    }
    if (flags_.save.empty() && flags_.checkpoint.empty() && flags_.save_best.empty())
      message(flags_, "note: neither --save nor --checkpoint: the trained weights will not be kept");
    Profile profile;
    if (flags_.profile) profile.attach(*session);
    FitOptions options = this->options();
    options.save_best = [&](const OptimizerState& reached) {
      return save(*session, open, reached, callbacks_.save_best->path);
    };
    auto fitted = fit(*session, *sources.train, sources.validation.get(), state, options, watcher);
    bar.end_line();
    PLIMSOLL_ASSIGN(const FitResult result, std::move(fitted));
    if (flags_.profile) tell(profile.text());
    if (result.interrupted) return interrupted(*session, open, result);
    if (!flags_.save.empty()) {
      PLIMSOLL_TRY(save(*session, open, result.optimizer, flags_.save));
      message(flags_, fmt::format("saved {}", flags_.save));
    }
    nothing_to_lose();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const nlohmann::ordered_json done = ordered_object({{"event", "done"},
                                                        {"steps", result.steps},
                                                        {"arena_planned_bytes", found.plan.arena_bytes},
                                                        {"arena_peak_bytes", session->arena_peak_bytes()},
                                                        {"overhead_measured_bytes", session->overhead_measured_bytes()},
                                                        {"process_peak_bytes", session->peak_held_bytes()},
                                                        {"process_peak_counted_by", session->counted_by()},
                                                        {"budget_bytes", budget_.bytes},
                                                        {"seconds", seconds}});
    log.write(done);
    PLIMSOLL_TRY(log.failed());
    PLIMSOLL_TRY(csv.failed());
    const Status kept = check_peak(*session, budget_, what_is_saved());
    report_end(result, done, *session, kept);
    if (!kept && !flags_.json) return tl::make_unexpected(kept.error());
    return kept ? 0 : exit_code(kept.error().code);
  }

 private:
  Status check_flags() {
    PLIMSOLL_TRY(flags_.resolve(true, true));
    if (flags_.resume && flags_.checkpoint.empty())
      return fail(Error{ErrorCode::kUsage, "--resume needs --checkpoint DIR", {}, {}});
    PLIMSOLL_TRY(flags_.check());
    PLIMSOLL_TRY(check_ending(flags_.save, ".keras", "--save"));
    PLIMSOLL_ASSIGN(callbacks_, parse_callbacks(flags_));
    // Found out now, not after the training.
    if (!flags_.save.empty()) PLIMSOLL_TRY(PathAside::create(flags_.save));
    if (callbacks_.save_best) PLIMSOLL_TRY(PathAside::create(callbacks_.save_best->path));
    PLIMSOLL_ASSIGN(every_, parse_every(flags_.checkpoint_every));
    return {};
  }

  // Without a number for --batch-size it is the plan's, unless the default makes the same of the samples there are.
  // That of auto was found when the plan was made: free memory may have changed since, what training means not.
  void take_batch(const Plan& plan, int64_t samples) {
    const bool automatic = flags_.job.automatic_batch, given = !automatic && flags_.batch_option->count() > 0;
    const auto window = checked_multiply(flags_.job.batch_size, flags_.job.accumulation_steps);
    if (given || !window || (!automatic && std::min(*window, samples) == plan.batch.effective)) return;
    flags_.job.automatic_batch = false;
    flags_.job.batch_size = std::max<int64_t>(1, plan.batch.effective / flags_.job.accumulation_steps);
  }

  Result<OptimizerState> first_weights(Session& session, const OpenModel& open) const {
    OptimizerState state{0, open.model.optimizer().learning_rate};
    if (!open.archive || !open.archive->weights) {
      PLIMSOLL_TRY(initialize_weights(session, flags_.seed));
      return state;
    }
    PLIMSOLL_ASSIGN(const LoadReport loaded, load_weights(session, *open.archive, open.optimizer_from_file));
    for (const std::string& note : loaded.notes) message(flags_, "note: " + note);
    state = loaded.optimizer;
    if (flags_.job.overrides.learning_rate) state.learning_rate = *flags_.job.overrides.learning_rate;
    return state;
  }

  FitOptions options() const {
    FitOptions options;
    options.epochs = flags_.epochs;
    options.steps_per_epoch = flags_.steps_per_epoch;
    options.seed = flags_.seed;
    options.checkpoint_folder = flags_.checkpoint;
    options.checkpoint_every_steps = every_;
    options.keep_checkpoints = flags_.keep_checkpoints;
    options.resume = flags_.resume;
    options.callbacks = callbacks_;
    options.best_weights_beside = flags_.save;
    options.learning_rate = flags_.job.overrides.learning_rate;
    options.stop = &stop_requested();
    options.identity = identity_.run;
    options.validation_identity = identity_.validation;
    return options;
  }

  Result<CsvLog> open_csv_log(bool resuming) const {
    int64_t epoch = 0;
    if (resuming) {
      PLIMSOLL_ASSIGN(epoch, epoch_of_checkpoint(flags_.checkpoint));
    }
    return CsvLog::open(flags_.csv_log, epoch, callbacks_.reduce_lr.has_value());
  }

  static Status save(const Session& session, const OpenModel& open, const OptimizerState& state,
                     const std::string& path) {
    return save_model(session, open.archive ? &*open.archive : nullptr, open.config_text, state, path);
  }

  Result<int> interrupted(const Session& session, const OpenModel& open, const FitResult& result) const {
    if (!flags_.checkpoint.empty()) {
      nothing_to_lose();
      message(flags_,
              fmt::format("interrupted; state saved in {}: go on with --resume", checkpoint_path(flags_.checkpoint)));
    } else {
      const std::string path = interrupted_path(flags_.save);
      PLIMSOLL_TRY(save(session, open, result.optimizer, path));
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

  void report_end(const FitResult& result, const nlohmann::ordered_json& done, const Session& session,
                  const Status& kept) const {
    if (flags_.json) {
      nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
      if (!result.history.empty())
        for (const Metric& metric : result.history.back().metrics) metrics[metric.name] = metric.value;
      nlohmann::ordered_json json = done;
      json.erase("event");
      json["metrics"] = metrics;
      if (!kept) json.update(error_json(kept.error()));
      answer(json_text(json) + "\n");
      return;
    }
    if (session.arena_peak_bytes() == 0 && result.stopped_early)
      return message(flags_,
                     "nothing was left to train: the run of the checkpoint was stopped early; a larger patience of "
                     "--early-stopping goes on");
    if (session.arena_peak_bytes() == 0)
      return message(flags_, fmt::format("nothing was left to train: the checkpoint has seen all {} epochs; --epochs N "
                                         "with more of them goes on",
                                         flags_.epochs));
    message(flags_,
            fmt::format("arena: {} planned, {} measured; {}", format_bytes(done["arena_planned_bytes"].get<Bytes>()),
                        format_bytes(done["arena_peak_bytes"].get<Bytes>()), peak_text(session, budget_)));
  }

  FitFlags& flags_;
  Budget budget_;
  CallbackOptions callbacks_;
  FitIdentity identity_;
  int64_t every_ = 0;
};

}  // namespace

void add_fit_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<FitFlags>();
  CLI::App* command = app.add_subcommand("fit", "trains inside the budget and writes the model back");
  command->add_option("MODEL", flags->job.model, "a .keras file, a Keras .json, or a built-in name")->required();
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  add_data_flags(*command, *flags, array_format_help(true))->required();
  add_fit_flags(*command, *flags);
  command->footer(
      "Example: plimsoll fit model.keras --data x.npy,y.npy --epochs 3 --batch-size 128 --budget 256MiB --save "
      "out.keras");
  actions[command] = [flags] {
    install_signal_handlers(
        "interrupted: finishing this micro-batch, then saving; a second Ctrl-C ends at once, unsaved", flags->json);
    say_when_lost(lost_by_signal(*flags, std::nullopt));
    return FitCommand(*flags).run();
  };
}

}  // namespace plimsoll
