#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "cli/command.h"
#include "cli/progress_bar.h"
#include "cli/run_log.h"
#include "execute/fit.h"
#include "device/process_memory.h"
#include "report/profile.h"

namespace plimsoll {
namespace {

struct FitFlags : CommonFlags {
  std::string data, validation_data, save, checkpoint, checkpoint_every = "epoch", plan, log, class_weight,
                                                       early_stopping;
  double validation_split = 0;
  int64_t validation_batch = 0, epochs = 1, steps_per_epoch = 0;
  uint64_t seed = 0;
  bool shuffle = true, resume = false, profile = false;
};

// The observer that writes the log and draws the bar.
class Watcher : public FitObserver {
 public:
  Watcher(ProgressBar& bar, RunLog& log) : bar_(bar), log_(log) {}
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
    log_.write({{"event", "epoch"}, {"epoch", event.epoch + 1}, {"metrics", metrics}});
    bar_.on_epoch_end(event);
  }
  void on_note(const std::string& text) override { bar_.on_note(text); }

 private:
  ProgressBar& bar_;
  RunLog& log_;
};

struct Sources {
  std::unique_ptr<ColumnSource> train, validation;
  DataTypes types;
};

Result<Sources> open_sources(const FitFlags& flags, const Model& model) {
  Sources sources;
  const DataSpec spec = data_spec(model, true);
  PLIMSOLL_ASSIGN(DataSet data, open_data(flags.data, spec));
  SourceOptions train{0, -1, flags.shuffle, flags.seed, {}};
  if (!flags.class_weight.empty()) {
    PLIMSOLL_ASSIGN(train.class_weights, ClassWeights::parse(flags.class_weight));
  }
  std::optional<DataSet> validation;
  SourceOptions held_out;
  if (!flags.validation_data.empty()) {
    PLIMSOLL_ASSIGN(validation, open_data(flags.validation_data, spec));
  } else if (flags.validation_split > 0) {
    PLIMSOLL_ASSIGN(train.end, validation_split_at(data.samples, flags.validation_split));
    held_out.begin = train.end;
    validation = data;
  }
  const bool weights =
      !data.weights.empty() || !train.class_weights.empty() || (validation && !validation->weights.empty());
  sources.types = data_types(data, weights);
  // One graph serves training and validation: both give weights or neither does.
  const auto with_weights = [&](DataSet& set) {
    Column ones;
    ones.role = Role::kWeights;
    if (weights && set.weights.empty()) set.weights.assign(set.targets.size(), ones);
  };
  with_weights(data);
  PLIMSOLL_ASSIGN(ColumnSource source, ColumnSource::create(std::move(data), train));
  sources.train = std::make_unique<ColumnSource>(std::move(source));
  if (!validation) return sources;
  with_weights(*validation);
  const DataTypes other = data_types(*validation, weights);
  if (other.inputs != sources.types.inputs || other.targets != sources.types.targets)
    return fail(Error{ErrorCode::kDataShape,
                      "training and validation data have different dtypes",
                      {},
                      {"convert one of them: array.astype(...)"}});
  PLIMSOLL_ASSIGN(ColumnSource held, ColumnSource::create(std::move(*validation), held_out));
  sources.validation = std::make_unique<ColumnSource>(std::move(held));
  return sources;
}

Result<EarlyStopping> parse_early_stopping(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string patience = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (patience.empty() || patience.find_first_not_of("0123456789") != std::string::npos || patience.size() > 9)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--early-stopping takes METRIC:PATIENCE, got '{}'", text),
                      {},
                      {"--early-stopping val_loss:3"}});
  return EarlyStopping{text.substr(0, colon), std::max<int64_t>(1, std::stoll(patience))};
}

Result<int64_t> parse_every(const std::string& text) {
  if (text == "epoch") return 0;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos || text.size() > 12 ||
      std::stoll(text) == 0)
    return fail(ErrorCode::kUsage,
                fmt::format("--checkpoint-every takes a number of steps or 'epoch', got '{}'", text));
  return std::stoll(text);
}

Result<Plan> read_plan(const std::string& path) {
  std::ifstream in(path);
  if (!in) return fail(ErrorCode::kFileUnreadable, fmt::format("{}: cannot be read", path));
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (json.is_discarded())
    return fail(ErrorCode::kBadPlan, fmt::format("{}: not JSON, expected a plan saved by plimsoll plan --save", path));
  return plan_from_json(json);
}

bool file_exists(const std::string& path) {
  return std::ifstream(path).good();
}

// The plan to run: a checkpoint's, a saved one, or the search's. A given plan must be for this model, batch and budget.
Result<SearchResult> choose_plan(const FitFlags& flags, const SearchRequest& request) {
  const bool resuming = flags.resume && file_exists(checkpoint_path(flags.checkpoint));
  if (!resuming && flags.plan.empty()) {
    PLIMSOLL_ASSIGN(SearchResult result, search(request));
    if (!result.fits) return fail(does_not_fit(request, result));
    return result;
  }
  SearchResult result;
  PLIMSOLL_ASSIGN(result.plan, resuming ? plan_of_checkpoint(flags.checkpoint) : read_plan(flags.plan));
  const std::string from = resuming ? checkpoint_path(flags.checkpoint) : flags.plan;
  Error other{resuming ? ErrorCode::kBadCheckpoint : ErrorCode::kBadPlan,
              fmt::format("{}: this {} was made for something else", from, resuming ? "checkpoint" : "plan"),
              {},
              {resuming ? "the flags it was started with, or another --checkpoint folder"
                        : "make it again with the same flags and data: plimsoll plan ... --data D --save FILE"}};
  if (result.plan.model != request.model->name())
    other.fact(fmt::format("model '{}' then, '{}' now", result.plan.model, request.model->name()));
  if (result.plan.batch.effective != request.batch)
    other.fact(fmt::format("batch {} then, {} now", result.plan.batch.effective, request.batch));
  if (result.plan.device != request.device->info().name)
    other.fact(fmt::format("device '{}' then, '{}' now", result.plan.device, request.device->info().name));
  if (result.plan.precision != to_text(request.graph.precision))
    other.fact(fmt::format("precision {} then, {} now", result.plan.precision, to_text(request.graph.precision)));
  if (!other.facts.empty()) return fail(std::move(other));
  PLIMSOLL_TRY(validate(result.plan));
  result.fits = result.plan.peak_bytes() <= request.budget;
  result.least_bytes = result.plan.peak_bytes();
  if (!result.fits)
    return fail(Error{ErrorCode::kDoesNotFit,
                      fmt::format("{}: this plan needs {}, the budget is {}", from,
                                  format_bytes(result.plan.peak_bytes()), format_bytes(request.budget)),
                      {},
                      {"a larger --budget"}});
  return result;
}

nlohmann::ordered_json plan_event(const SearchResult& found, const Budget& budget) {
  const Plan& plan = found.plan;
  nlohmann::ordered_json levers = nlohmann::ordered_json::array();
  for (const LeverUse& lever : plan.levers)
    levers.push_back({{"name", lever.name}, {"count", lever.count}, {"effect", std::string(name_of(lever.effect))}});
  return {{"event", "plan"},
          {"model", plan.model},
          {"device", plan.device},
          {"batch",
           {{"effective", plan.batch.effective},
            {"micro", plan.batch.micro},
            {"accumulation_steps", plan.batch.accumulation_steps()}}},
          {"precision", plan.precision},
          {"budget_bytes", budget.bytes},
          {"peak_bytes", plan.peak_bytes()},
          {"arena_bytes", plan.arena_bytes},
          {"overhead_bytes", plan.overhead_bytes},
          {"data_bytes", plan.data_bytes},
          {"levers", levers},
          {"step_seconds", plan.step_seconds}};
}

// Where an interrupted run leaves its weights when there is no checkpoint folder.
std::string interrupted_path(const std::string& save) {
  const std::string base = save.empty() ? "plimsoll.keras" : save;
  const size_t dot = base.rfind(".keras");
  return (dot == std::string::npos ? base : base.substr(0, dot)) + ".interrupted.keras";
}

class FitCommand {
 public:
  explicit FitCommand(FitFlags& flags) : flags_(flags) {}

  Result<int> run() {
    const auto start = std::chrono::steady_clock::now();
    PLIMSOLL_TRY(check_flags());
    PLIMSOLL_ASSIGN(OpenModel open, open_model(flags_.job.model, flags_.job.overrides));
    PLIMSOLL_ASSIGN(const auto backend, open_backend(flags_.job));
    PLIMSOLL_ASSIGN(const Precision precision, parse_precision(flags_.job.precision));
    PLIMSOLL_ASSIGN(const Sources sources, open_sources(flags_, open.model));
    PLIMSOLL_TRY(open.model.check_batch(flags_.job.batch_size * flags_.job.accumulation_steps));
    budget_ = choose_budget(flags_.job, backend->device().info());
    const SearchRequest request = make_request(open.model, *backend, precision, sources);
    PLIMSOLL_ASSIGN(SearchResult found, choose_plan(flags_, request));
    for (const LeverUse& lever : found.plan.levers)
      if (lever.effect == Effect::kTraining)
        message(flags_, fmt::format("changes training: {} (you allowed it)", lever.name));
    const PlanReport report{&open.model, open.file, backend->device().info(), budget_.bytes, budget_.margin, &found};
    if (!flags_.quiet && flags_.plan.empty() && !flags_.json && !flags_.resume)
      fmt::print(stderr, "{}\n", plan_text(report));

    PLIMSOLL_ASSIGN(const auto session, Session::create(open.model, found.plan, *backend, request.graph));
    PLIMSOLL_ASSIGN(const OptimizerState state, first_weights(*session, open));
    const bool resuming = flags_.resume && file_exists(checkpoint_path(flags_.checkpoint));
    PLIMSOLL_ASSIGN(RunLog log, RunLog::open(flags_.log, resuming));
    log.write(plan_event(found, budget_));
    ProgressBar bar(flags_.quiet, budget_.bytes);
    Watcher watcher(bar, log);
    if (resuming) {
      PLIMSOLL_ASSIGN(const int64_t step, step_of_checkpoint(flags_.checkpoint));
      log.write({{"event", "resume"}, {"step", step}});
      message(flags_, fmt::format("resuming after step {}", step));
    } else if (flags_.resume) {
      message(flags_, fmt::format("no checkpoint in {} yet: starting from the beginning", flags_.checkpoint));
    }
    Profile profile;
    if (flags_.profile) profile.attach(*session);
    PLIMSOLL_ASSIGN(const FitResult result,
                    fit(*session, *sources.train, sources.validation.get(), state, options(open), watcher));
    if (flags_.profile) fmt::print(stderr, "{}", profile.text());
    if (result.interrupted) return interrupted(*session, open, result);
    if (!flags_.save.empty()) {
      PLIMSOLL_TRY(save_model(*session, open.archive ? &*open.archive : nullptr, open.config_text, result.optimizer,
                              flags_.save));
      message(flags_, fmt::format("saved {}", flags_.save));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const nlohmann::ordered_json done = {{"event", "done"},
                                         {"steps", result.steps},
                                         {"arena_planned_bytes", found.plan.arena_bytes},
                                         {"arena_peak_bytes", session->arena_peak_bytes()},
                                         {"overhead_measured_bytes", session->overhead_measured_bytes()},
                                         {"process_peak_bytes", session->peak_held_bytes()},
                                         {"budget_bytes", budget_.bytes},
                                         {"seconds", seconds}};
    log.write(done);
    PLIMSOLL_TRY(log.failed());
    report_end(result, done);
    return 0;
  }

 private:
  Status check_flags() {
    PLIMSOLL_TRY(flags_.resolve(true, true));
    if (flags_.resume && flags_.checkpoint.empty())
      return fail(Error{ErrorCode::kUsage, "--resume needs --checkpoint DIR", {}, {}});
    if (flags_.validation_split < 0 || flags_.validation_split >= 1)
      return fail(ErrorCode::kUsage, fmt::format("--validation-split takes a fraction from 0 to below 1, got {}",
                                                 flags_.validation_split));
    if (!flags_.early_stopping.empty()) {
      PLIMSOLL_ASSIGN(early_stopping_, parse_early_stopping(flags_.early_stopping));
    }
    // Found out now, not after the training.
    if (!flags_.save.empty()) PLIMSOLL_TRY(PathAside::create(flags_.save));
    PLIMSOLL_ASSIGN(every_, parse_every(flags_.checkpoint_every));
    return {};
  }

  SearchRequest make_request(const Model& model, const Backend& backend, const Precision& precision,
                             const Sources& sources) const {
    SearchRequest request = base_request(flags_.job, model, backend.device(), precision, sources.types, budget_);
    const int64_t samples = sources.train->samples();
    request.batch = std::min(request.batch, samples);
    request.partial_window = samples % request.batch;
    if (sources.validation) {
      request.evaluate_samples = sources.validation->samples();
      request.evaluate_batch = flags_.validation_batch > 0 ? flags_.validation_batch : flags_.job.batch_size;
    }
    request.data = data_demand(model, sources.types);
    return request;
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

  FitOptions options(const OpenModel& open) const {
    FitOptions options;
    options.epochs = flags_.epochs;
    options.steps_per_epoch = flags_.steps_per_epoch;
    options.seed = flags_.seed;
    options.checkpoint_folder = flags_.checkpoint;
    options.checkpoint_every_steps = every_;
    options.resume = flags_.resume;
    options.early_stopping = early_stopping_;
    options.stop = &stop_requested();
    options.identity = {{"model", open.model.name()},          {"data", flags_.data},
                        {"batch_size", flags_.job.batch_size}, {"seed", flags_.seed},
                        {"shuffle", flags_.shuffle},           {"steps_per_epoch", flags_.steps_per_epoch}};
    return options;
  }

  Result<int> interrupted(const Session& session, const OpenModel& open, const FitResult& result) const {
    if (!flags_.checkpoint.empty()) {
      message(flags_,
              fmt::format("interrupted; state saved in {}: go on with --resume", checkpoint_path(flags_.checkpoint)));
    } else {
      const std::string path = interrupted_path(flags_.save);
      PLIMSOLL_TRY(
          save_model(session, open.archive ? &*open.archive : nullptr, open.config_text, result.optimizer, path));
      message(flags_, fmt::format("interrupted after step {}; weights saved in {}", result.optimizer.iteration, path));
    }
    return exit_code(ErrorCode::kInterrupted);
  }

  void report_end(const FitResult& result, const nlohmann::ordered_json& done) const {
    if (flags_.json) {
      nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
      if (!result.history.empty())
        for (const Metric& metric : result.history.back().metrics) metrics[metric.name] = metric.value;
      nlohmann::ordered_json json = done;
      json.erase("event");
      json["metrics"] = metrics;
      fmt::print("{}\n", json.dump(2));
      return;
    }
    message(flags_, fmt::format("arena: {} planned, {} measured; process peak: {} of {}",
                                format_bytes(done["arena_planned_bytes"].get<Bytes>()),
                                format_bytes(done["arena_peak_bytes"].get<Bytes>()),
                                format_bytes(done["process_peak_bytes"].get<Bytes>()), format_bytes(budget_.bytes)));
  }

  FitFlags& flags_;
  Budget budget_;
  std::optional<EarlyStopping> early_stopping_;
  int64_t every_ = 0;
};

}  // namespace

void add_fit_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<FitFlags>();
  CLI::App* command = app.add_subcommand("fit", "trains inside the budget and writes the model back");
  command->add_option("MODEL", flags->job.model, "a .keras file, a Keras .json, or a built-in name")->required();
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  command->add_option("--data", flags->data, "x.npy,y.npy[,weights.npy], an .npz, or an IDX pair")->required();
  command->add_option("--validation-data", flags->validation_data, "as --data");
  command->add_option("--validation-split", flags->validation_split, "the last part of --data, held out");
  command->add_option("--validation-batch-size", flags->validation_batch, "default: --batch-size")
      ->check(CLI::PositiveNumber);
  command->add_option("--epochs", flags->epochs, "passes over the data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--steps-per-epoch", flags->steps_per_epoch, "optimizer steps an epoch, if fewer than the data has")
      ->check(CLI::PositiveNumber);
  command->add_option("--class-weight", flags->class_weight, "0:1,1:5");
  command->add_option("--shuffle", flags->shuffle, "a new order each epoch, set by --seed")->capture_default_str();
  command->add_option("--early-stopping", flags->early_stopping, "METRIC:PATIENCE, as val_loss:3");
  command->add_option("--checkpoint", flags->checkpoint, "folder for checkpoints");
  command->add_option("--checkpoint-every", flags->checkpoint_every, "STEPS or epoch")->capture_default_str();
  command->add_flag("--resume", flags->resume, "go on from the checkpoint, if there is one");
  command->add_option("--save", flags->save, "write the trained model here, as .keras");
  command->add_option("--plan", flags->plan, "run this plan, saved by plimsoll plan --save");
  command->add_option("--seed", flags->seed, "of the shuffle, dropout and initial weights")->capture_default_str();
  command->add_option("--log", flags->log, "write the run here, one JSON object a line");
  command->add_flag("--profile", flags->profile, "where the time goes: each node measured beside predicted");
  command->footer(
      "Example: plimsoll fit model.keras --data x.npy,y.npy --epochs 3 --batch-size 128 --budget 256MiB --save "
      "out.keras");
  actions[command] = [flags] { return FitCommand(*flags).run(); };
}

}  // namespace plimsoll
