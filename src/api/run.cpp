#include "api/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/bucket_windows.h"
#include "api/calibration.h"
#include "base/checked.h"
#include "levers/split_batch.h"
#include "plan/recompute.h"
#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/plan_match.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

// The data were opened with the forced prefetch setting, so the bytes of prefetched batches are counted.
Result<SearchResult> forced_plan(const SearchRequest& request, const ForcedSettings& forced) {
  const int64_t micro = forced.micro.value_or(request.batch);
  const LeverSettings settings =
      cut_into(request, micro).with(kSplit, forced.split).with(kOffload, std::lround(100 * (1 - forced.kept)));
  std::optional<Plan> made;
  for (int64_t percent = forced.recompute; !made && percent >= 0; --percent) {
    PLIMSOLL_ASSIGN(made, compile(request, settings.with(kRecompute, percent)));
  }
  if (!made)
    return fail(ErrorCode::kDoesNotFit,
                fmt::format("no plan can keep a share of {} of the live set on the device", forced.kept));
  if (request.device->info().own_memory) made->settings.set(kPrefetch, forced.prefetch);  // prefetches into host memory
  PLIMSOLL_ASSIGN(made->program, program_digest(request, micro));
  PLIMSOLL_TRY(validate(*made));
  SearchResult result;
  result.plan = std::move(*made);
  result.fits = request.budget == 0 || result.plan.peak_bytes() <= request.budget;
  result.least_bytes = result.plan.peak_bytes();
  return result;
}

}  // namespace

Result<std::unique_ptr<Run>> Run::open(RunOptions options) {
  PLIMSOLL_ASSIGN(OpenModel model, open_model(options));
  return open(std::move(model), std::move(options));
}

Result<std::unique_ptr<Run>> Run::open(OpenModel model, RunOptions options) {
  std::unique_ptr<Run> run(new Run(std::move(model), std::move(options)));
  RunOptions& o = run->options_;
  for (const std::string& note : run->open_.notes) o.tell(note);
  if (o.mode != Mode::kTrain && !run->open_.has_weights() && !o.weights_from_caller)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{} has no weights to {} with", run->open_.file,
                                  o.mode == Mode::kEvaluate ? "evaluate" : "predict"),
                      {},
                      {"train it first: plimsoll fit ... --save FILE.keras"}});
  if (o.precision.empty()) {
    o.precision = to_text(run->model().policy());
    o.policy_of_layers = true;
  }
  PLIMSOLL_ASSIGN(run->backend_, open_backend(o));
  if (o.wrap_backend) run->backend_ = o.wrap_backend(std::move(run->backend_));
  PLIMSOLL_ASSIGN(run->calibrated_, calibrated_device(o, run->backend_->device()));
  PLIMSOLL_ASSIGN(run->data_, open_run_data(o, run->model()));
  if (o.data.buckets && o.mode == Mode::kTrain) {
    PLIMSOLL_TRY(check_bucket_options(o));
    PLIMSOLL_ASSIGN(run->buckets_, open_buckets(o, run->model(), *run->data_.source));
    run->data_.outline.reads_ahead = false;
    run->data_.outline.reader_bytes += run->buckets_->bytes() + BucketWindows::staging_bytes(*run->data_.source);
  }
  run->budget_ = choose_budget(o, run->device());
  return run;
}

// If the user gave no number for --batch-size, the batch size of the plan is used, unless the default gives the same
// effective batch for this number of samples. If `auto` chose the batch size of the plan, it is kept: free memory may
// have changed since, and another batch size would change the training.
void Run::take_batch_of(const Plan& given) {
  RunOptions& o = options_;
  const auto window = checked_multiply(o.batch_size, o.accumulation_steps);
  if (o.batch_given || buckets_ || !window) return;
  if (!o.automatic_batch && std::min(*window, data_.outline.samples) == given.batch.effective) return;
  o.automatic_batch = false;
  o.batch_size = std::max<int64_t>(1, given.batch.effective / o.accumulation_steps);
}

Status Run::choose_batch() {
  if (request_) return {};
  const bool trains = options_.mode == Mode::kTrain;
  if (trains) PLIMSOLL_TRY(check_cut(options_));
  if (options_.automatic_batch) {
    PLIMSOLL_ASSIGN(const AutomaticBatch chosen,
                    automatic_batch(options_, model(), *backend_, planned_device(), data_.outline, budget_));
    options_.batch_size = chosen.size;
    if (trains) options_.tell(fmt::format("--batch-size auto: {}{}", chosen.size, chosen.why));
  }
  if (trains) PLIMSOLL_TRY(model().check_batch(options_.batch_size * options_.accumulation_steps));
  if (buckets_) {
    const int64_t longest = buckets_->list[0].samples;
    PLIMSOLL_ASSIGN(request_, bucket_request(model(), longest > 0 ? longest : data_.outline.samples, true));
  } else {
    PLIMSOLL_ASSIGN(request_, make_request(options_, model(), *backend_, data_.outline, budget_));
  }
  request_->device = &planned_device();
  return {};
}

Result<SearchResult> Run::make_plan(const SearchRequest& request, const RunOptions& options) {
  return within_planning_limit(
      [&] { return options.forced ? forced_plan(request, *options.forced) : plimsoll::engine::search(request); });
}

Status Run::search() {
  PLIMSOLL_TRY(choose_batch());
  PLIMSOLL_ASSIGN(found_, make_plan(*request_, options_));
  return {};
}

Status Run::plan(const GivenPlan* given) {
  PLIMSOLL_TRY(choose_batch());
  if (buckets_) return plan_all_buckets(given);
  return plan_one(given);
}

Status Run::plan_one(const GivenPlan* given) {
  if (given == nullptr) {
    PLIMSOLL_TRY(search());
    return found_.fits ? Status() : fail(does_not_fit(*request_, found_));
  }
  PLIMSOLL_ASSIGN(AcceptedPlan accepted, within_planning_limit([&] { return accept_plan(*given, *request_); }));
  if (!accepted.note.empty()) options_.tell(accepted.note);
  found_ = std::move(accepted.result);
  return {};
}

Status Run::bind() {
  // Readers of data were opened before and are counted as data, not as overhead.
  const Bytes readers = backend_->device().info().own_memory ? 0 : data_.outline.reader_bytes;
  PLIMSOLL_ASSIGN(session_, Session::create(model(), found_.plan, *backend_, request_->graph,
                                            held_before(options_, *backend_) + readers, options_.enforce_overhead));
  return buckets_ ? bind_buckets() : Status();
}

Status Run::load() {
  optimizer_ = {0, model().optimizer().learning_rate};
  if (!open_.has_weights()) return initialize_weights(*session_, options_.seed);
  const bool trains = options_.mode == Mode::kTrain;
  PLIMSOLL_ASSIGN(const LoadReport loaded,
                  load_weights(*session_, *open_.archive, trains && open_.optimizer_from_file));
  if (!trains) return {};
  for (const std::string& note : loaded.notes) options_.tell("note: " + note);
  optimizer_ = loaded.optimizer;
  if (options_.overrides.learning_rate) optimizer_.learning_rate = *options_.overrides.learning_rate;
  return {};
}

Status Run::start() {
  PLIMSOLL_TRY(bind());
  return load();
}

Status Run::begin(int64_t samples, int64_t done) {
  PLIMSOLL_ASSIGN(const Window window, next_window(*session_, optimizer_, samples, options_.seed));
  return session_->begin(window, done);
}

// Prepares all micro-batch sizes of a batch before the first micro-batch runs.
Status Run::prepare(PhaseKind kind, int64_t samples) {
  const Plan& plan = session_->plan();
  const PhasePlan* phase = plan.phase(kind);
  const int64_t piece = kind == plan.gradient_phase() ? plan.batch.micro : phase != nullptr ? phase->samples : 0;
  if (piece < 1) return fail(ErrorCode::kBadPlan, fmt::format("the plan has no phase {}", to_text(PhaseName{kind})));
  PLIMSOLL_TRY(prepare_piece(kind, std::min(piece, samples)));
  return prepare_piece(kind, samples % piece);
}

Status Run::prepare_piece(PhaseKind kind, int64_t samples) {
  if (samples == 0 || session_->can_run(kind, samples)) return {};
  const Plan& plan = session_->plan();
  PLIMSOLL_ASSIGN(PhasePlan tail, plan_tail(*request_, plan, kind, samples));
  BoundCounts counts = session_->counts();
  counts += tail.counts();
  const Bytes peak = plan.arena_bytes + plan.data_bytes + request_->device->overhead_bound(counts);
  if (request_->budget > 0 && peak > request_->budget)
    return fail(Error{
        ErrorCode::kDoesNotFit,
        fmt::format("a batch of {} samples, a new size, does not fit in {}", samples, format_bytes(request_->budget)),
        {fmt::format("with the kernels for this size, the process would hold up to {}", format_bytes(peak))},
        {"use batch sizes that already ran", fmt::format("--budget {}MiB", (peak + kMiB - 1) / kMiB)}});
  return session_->add_phase(std::move(tail));
}

Status Run::apply() {
  PLIMSOLL_TRY(session_->apply());
  ++optimizer_.iteration;
  return {};
}

Status Run::replan(const RunOptions& changed) {
  RunOptions options = options_;
  if (changed.budget) options.budget = changed.budget;
  options.host_budget = changed.host_budget;
  options.micro_batch = changed.micro_batch;
  options.forbidden = changed.forbidden;
  options.per_micro_batch_norm = changed.per_micro_batch_norm;
  options.forced = changed.forced;
  PLIMSOLL_TRY(check_cut(options));
  // The free memory does not include the arena that this run holds. So if `changed` has no budget, the old budget
  // stays.
  const Budget budget = options.budget ? choose_budget(options, device()) : budget_;
  DataOutline data = data_.outline;
  data.reads_ahead = reads_ahead(options);
  PLIMSOLL_ASSIGN(SearchRequest request, make_request(options, model(), *backend_, data, budget));
  request.device = &planned_device();
  request.arena = session_->kept();
  PLIMSOLL_ASSIGN(SearchResult found, make_plan(request, options));
  if (!found.fits) return fail(does_not_fit(request, found));
  PLIMSOLL_TRY(session_->change_plan(model(), found.plan));
  options_ = std::move(options);
  budget_ = budget;
  data_.outline = std::move(data);
  request_ = std::move(request);
  found_ = std::move(found);
  return {};
}

Result<FitResult> Run::fit(const FitOptions& options, FitObserver& observer) {
  if (buckets_) return fit_buckets(options, observer);
  PLIMSOLL_ASSIGN(FitResult result, plimsoll::engine::fit(*session_, *data_.source, data_.validation.get(), optimizer_,
                                                          options, observer));
  optimizer_ = result.optimizer;
  return result;
}

Result<FitResult> Run::fit(WindowReader& data, const Validate& validate, const FitOptions& options,
                           FitObserver& observer) {
  return plimsoll::engine::fit(*session_, data, validate, optimizer_, options, observer);
}

Result<std::vector<Metric>> Run::evaluate(const std::atomic<bool>* stop,
                                          const std::function<void(int64_t done)>& progress) {
  return plimsoll::engine::evaluate(*session_, *data_.source, stop, progress);
}

Status Run::predict(const std::atomic<bool>* stop, const std::function<Status(size_t output, const TensorView&)>& write,
                    const std::function<void(int64_t done)>& progress) {
  const int64_t samples = data_.source->samples(), batch = session_->plan().phase(PhaseKind::kPredict)->samples;
  for (int64_t first = 0; first < samples;) {
    if (stop != nullptr && stop->load())
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} samples", first, samples));
    const int64_t count = std::min(batch, samples - first);
    PLIMSOLL_TRY(
        session_->predict(count, [&](const BatchBuffers& into) { return data_.source->read(0, first, count, into); }));
    for (size_t i = 0; i < model().outputs().size(); ++i) {
      PLIMSOLL_ASSIGN(const TensorView view, session_->prediction(count, i));
      PLIMSOLL_TRY(write(i, view));
    }
    first += count;
    if (progress) progress(first);
  }
  return {};
}

Status Run::save(const std::string& path, const OptimizerState& reached) const {
  return save_model(*session_, open_.file_archive(), open_.config_text, reached, path);
}

PlanReport Run::report() const {
  PlanReport report;
  report.model = &open_.model;
  report.file = open_.file;
  report.device = device();
  report.budget = budget_.bytes;
  report.margin = budget_.margin;
  report.result = &found_;
  report.held_before = request_ ? request_->data.held_before : 0;
  report.data_lines = data_lines(data_);
  report.data = data_json(data_);
  return report;
}

}  // namespace plimsoll::engine
