#include "api/trainer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/checked.h"

namespace plimsoll::engine {
namespace {

Status at_least(int64_t value, int64_t least, const char* option) {
  if (value >= least) return {};
  return fail(ErrorCode::kUsage, fmt::format("TrainerOptions::{} must be at least {}, got {}", option, least, value));
}

Status check(const TrainerOptions& options) {
  PLIMSOLL_TRY(at_least(options.batch_size, 1, "batch_size"));
  PLIMSOLL_TRY(at_least(options.gradient_accumulation_steps, 1, "gradient_accumulation_steps"));
  PLIMSOLL_TRY(at_least(options.micro_batch, 0, "micro_batch"));
  PLIMSOLL_TRY(at_least(options.threads, 0, "threads"));
  if (options.micro_batch > options.batch_size)
    return fail(ErrorCode::kUsage, fmt::format("TrainerOptions::micro_batch {} is larger than batch_size {}",
                                               options.micro_batch, options.batch_size));
  if (!checked_multiply(options.batch_size, options.gradient_accumulation_steps))
    return fail(ErrorCode::kUsage,
                fmt::format("TrainerOptions::gradient_accumulation_steps {} of batch_size {} are too many samples to "
                            "count",
                            options.gradient_accumulation_steps, options.batch_size));
  return {};
}

Result<RunOptions> run_options(const TrainerOptions& options) {
  PLIMSOLL_TRY(check(options));
  RunOptions run;
  run.batch_size = options.batch_size;
  run.accumulation_steps = options.gradient_accumulation_steps;
  if (options.micro_batch > 0) run.micro_batch = options.micro_batch;
  if (!options.budget.empty()) {
    auto budget = parse_bytes(options.budget);
    if (!budget) budget.error().what = "TrainerOptions::budget: " + budget.error().what;
    PLIMSOLL_TRY(budget);
    if (*budget == 0) return fail(ErrorCode::kUsage, "TrainerOptions::budget must be above 0");
    run.budget = *budget;
  }
  run.threads = options.threads;
  run.seed = options.seed;
  run.precision = to_text(Precision());
  run.find_least = true;
  run.data.reads_ahead = false;  // the caller has the batch in its memory
  run.memory_growth = choose_memory_growth(false, std::getenv(kForceGrowth)).on;
  return run;
}

Status check(const Model& model) {
  if (model.inputs().size() == 1 && model.outputs().size() == 1 && model.outputs()[0].has_loss) return {};
  return fail(ErrorCode::kUsage, fmt::format("Trainer takes models with one input and one output with a loss, this "
                                             "one has {} and {}",
                                             model.inputs().size(), model.outputs().size()));
}

}  // namespace

TrainerState::TrainerState(std::unique_ptr<Run> run)
    : run_(std::move(run)),
      reader_(run_->model(), run_->request().graph.data),
      batch_size_(run_->options().batch_size) {
  for (const PhasePlan& phase : run_->found().plan.phases) primitives_ += phase.primitives;
}

Result<std::unique_ptr<TrainerState>> TrainerState::create(const Description& description,
                                                           const TrainerOptions& options, Bytes resident_before,
                                                           WrapBackend wrap_backend) {
  PLIMSOLL_ASSIGN(RunOptions run_options, plimsoll::engine::run_options(options));
  run_options.resident_before = resident_before;
  run_options.wrap_backend = std::move(wrap_backend);
  PLIMSOLL_ASSIGN(OpenModel open, open_description(description, "", {}));
  PLIMSOLL_TRY(check(open.model));
  PLIMSOLL_ASSIGN(auto run, Run::open(std::move(open), std::move(run_options)));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  return std::unique_ptr<TrainerState>(new TrainerState(std::move(run)));
}

Status TrainerState::begin(int64_t samples) {
  if (window_ > 0)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("a window of {} samples is under way, {} of them were given", window_, done_),
                      {},
                      {"accumulate() the rest, then apply()"}});
  const int64_t most = cut().effective;
  if (samples < 1 || samples > most)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("begin({}): a window has from 1 to {} samples", samples, most),
                      {fmt::format("TrainerOptions::batch_size {} x gradient_accumulation_steps {}", batch_size_,
                                   run_->request().accumulation_steps)},
                      {}});
  return start(samples);
}

Status TrainerState::start(int64_t samples) {
  PLIMSOLL_TRY(run_->begin(samples));
  window_ = samples;
  done_ = 0;
  return {};
}

Status TrainerState::accumulate(const Batch& batch) {
  if (window_ == 0) return fail(ErrorCode::kUsage, "accumulate() without begin(): no window is under way");
  PLIMSOLL_TRY(reader_.check(batch, batch_size_));
  if (batch.samples > window_ - done_)
    return fail(ErrorCode::kUsage, fmt::format("the window was begun for {} samples, this batch makes {}", window_,
                                               done_ + batch.samples));
  if (cut().micro == cut().effective && batch.samples < window_)
    return fail(Error{ErrorCode::kUsage,
                      "this trainer was planned for windows of one batch each",
                      {},
                      {"TrainerOptions::gradient_accumulation_steps above 1", "step() for each batch"}});
  PLIMSOLL_TRY(prepare(batch.samples));
  return run(batch);
}

Result<double> TrainerState::apply() {
  if (window_ == 0) return fail(ErrorCode::kUsage, "apply() without begin(): no window is under way");
  if (done_ != window_)
    return fail(ErrorCode::kUsage,
                fmt::format("apply(): the window was begun for {} samples, {} were given", window_, done_));
  return finish();
}

Result<double> TrainerState::step(const Batch& batch) {
  if (window_ > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("step() inside a window of {} samples: apply() has to end it first", window_));
  PLIMSOLL_TRY(reader_.check(batch, batch_size_));
  PLIMSOLL_TRY(prepare(batch.samples));
  PLIMSOLL_TRY(start(batch.samples));
  PLIMSOLL_TRY(run(batch));
  return finish();
}

// A phase for pieces of a size that was not planned for, inside the same arena. Its kernels are overhead, which the
// budget may have no room for.
Status TrainerState::prepare_piece(int64_t count) {
  if (count == 0 || session().can_accumulate(count)) return {};
  const SearchRequest& request = run_->request();
  const Plan& plan = session().plan();
  PLIMSOLL_ASSIGN(PhasePlan tail, plan_tail(request, plan, count));
  const int primitives = primitives_ + tail.primitives;
  const Bytes peak = plan.arena_bytes + plan.data_bytes + request.device->overhead_bound(primitives);
  if (request.budget > 0 && peak > request.budget)
    return fail(
        Error{ErrorCode::kDoesNotFit,
              fmt::format("a batch of {} samples, a size that was not seen before, does not fit in {}", count,
                          format_bytes(request.budget)),
              {fmt::format("with kernels for it the process would hold up to {}", format_bytes(peak))},
              {"batches of sizes that were seen before", fmt::format("--budget {}MiB", (peak + kMiB - 1) / kMiB)}});
  PLIMSOLL_TRY(run_->session().add_phase(std::move(tail)));
  primitives_ = primitives;
  return {};
}

// All of a batch's pieces can run before the first one does.
Status TrainerState::prepare(int64_t samples) {
  PLIMSOLL_TRY(prepare_piece(std::min(cut().micro, samples)));
  return prepare_piece(samples % cut().micro);
}

Status TrainerState::run(const Batch& batch) {
  const Status status =
      run_->accumulate(batch.samples, [&](const BatchRequest& piece, const BatchBuffers& into) -> Status {
        reader_.copy(batch, piece.first, piece.count, into);
        return {};
      });
  if (status)
    done_ += batch.samples;
  else
    window_ = done_ = 0;  // what it has summed is of no use; the next begin() clears it
  return status;
}

Result<double> TrainerState::finish() {
  window_ = done_ = 0;
  PLIMSOLL_TRY(run_->apply());
  PLIMSOLL_ASSIGN(const Sums* sums, run_->session().collect());
  const auto& tallies = session().tallies();
  const auto loss = std::find_if(tallies.begin(), tallies.end(), [](const Tally& t) { return t.name == "loss"; });
  if (loss == tallies.end()) return fail(ErrorCode::kInternal, "the plan sums no loss");
  const double value = sums->tallies[static_cast<size_t>(loss - tallies.begin())];
  if (std::isfinite(value)) return value;
  return fail(Error{ErrorCode::kDataNotFinite,
                    fmt::format("the loss is {}: training has diverged", value),
                    {"every element of the batch is finite", "the weights are not to be used any more"},
                    {"a smaller learning rate: Adam(1e-4)", "inputs near 1: Rescaling(1.0 / 255)"}});
}

Status TrainerState::save(const std::string& path) const {
  if (window_ > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("save() inside a window of {} samples: apply() has to end it first", window_));
  return run_->save(path);
}

std::string TrainerState::plan_text() const {
  PlanReport report = run_->report();
  report.in_program = true;
  return plimsoll::engine::plan_text(report);
}

}  // namespace plimsoll::engine
