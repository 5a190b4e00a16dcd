#include "api/trainer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/checked.h"
#include "execute/window.h"

namespace plimsoll {
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

Result<JobOptions> job_of(const TrainerOptions& options) {
  PLIMSOLL_TRY(check(options));
  JobOptions job;
  job.batch_size = options.batch_size;
  job.accumulation_steps = options.gradient_accumulation_steps;
  if (options.micro_batch > 0) job.micro_batch = options.micro_batch;
  if (!options.budget.empty()) {
    auto budget = parse_bytes(options.budget);
    if (!budget) budget.error().what = "TrainerOptions::budget: " + budget.error().what;
    PLIMSOLL_TRY(budget);
    if (*budget == 0) return fail(ErrorCode::kUsage, "TrainerOptions::budget must be above 0");
    job.budget = *budget;
  }
  job.threads = options.threads;
  job.memory_growth = choose_memory_growth(false, std::getenv(kForceGrowth)).on;
  return job;
}

Status check(const Model& model) {
  if (model.inputs().size() == 1 && model.outputs().size() == 1 && model.outputs()[0].has_loss) return {};
  return fail(ErrorCode::kUsage, fmt::format("Trainer takes models with one input and one output with a loss, this "
                                             "one has {} and {}",
                                             model.inputs().size(), model.outputs().size()));
}

}  // namespace

Result<std::unique_ptr<TrainerState>> TrainerState::create(const Description& description,
                                                           const TrainerOptions& options, Bytes resident_before,
                                                           const OpenBackend& open_backend) {
  PLIMSOLL_ASSIGN(const JobOptions job, job_of(options));
  PLIMSOLL_ASSIGN(OpenModel open, open_description(description, "", {}));
  std::unique_ptr<TrainerState> state(new TrainerState(std::move(open)));
  const Model& model = state->open_.model;
  PLIMSOLL_TRY(check(model));
  PLIMSOLL_TRY(model.check_batch(job.batch_size * job.accumulation_steps));
  PLIMSOLL_ASSIGN(state->backend_, open_backend(job));
  const Device& device = state->backend_->device();
  state->budget_ = choose_budget(job, device.info());
  SearchRequest& request = state->request_;
  request = base_request(job, model, device, DType::kFloat32, assumed_data_types(model, false), state->budget_);
  // A GPU's budget is the GPU's memory, of which the host's bytes are no part.
  const Bytes held_before = device.info().own_memory ? state->backend_->held_before_bytes() : resident_before;
  request.data.held_before = held_before;
  PLIMSOLL_ASSIGN(state->found_, search(request));
  if (!state->found_.fits) return fail(does_not_fit(request, state->found_));
  PLIMSOLL_ASSIGN(state->session_,
                  Session::create(model, state->found_.plan, *state->backend_, request.graph, held_before));
  PLIMSOLL_TRY(initialize_weights(*state->session_, options.seed));
  for (const PhasePlan& phase : state->found_.plan.phases) state->primitives_ += phase.primitives;
  state->optimizer_.learning_rate = model.optimizer().learning_rate;
  state->seed_ = options.seed;
  state->batch_size_ = options.batch_size;
  return state;
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
                                   request_.accumulation_steps)},
                      {}});
  return start(samples);
}

Status TrainerState::start(int64_t samples) {
  PLIMSOLL_ASSIGN(const Window next, next_window(*session_, optimizer_, samples, seed_));
  PLIMSOLL_TRY(session_->begin(next));
  window_ = samples;
  done_ = 0;
  return {};
}

Status TrainerState::accumulate(const Batch& batch) {
  if (window_ == 0) return fail(ErrorCode::kUsage, "accumulate() without begin(): no window is under way");
  PLIMSOLL_TRY(BatchReader(open_.model, request_.graph.data).check(batch, batch_size_));
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
  PLIMSOLL_TRY(BatchReader(open_.model, request_.graph.data).check(batch, batch_size_));
  PLIMSOLL_TRY(prepare(batch.samples));
  PLIMSOLL_TRY(start(batch.samples));
  PLIMSOLL_TRY(run(batch));
  return finish();
}

// A phase for pieces of a size that was not planned for, inside the same arena. Its kernels are overhead, which the
// budget may have no room for.
Status TrainerState::prepare_piece(int64_t count) {
  if (count == 0 || session_->can_accumulate(count)) return {};
  const Plan& plan = session_->plan();
  PLIMSOLL_ASSIGN(PhasePlan tail, plan_tail(request_, plan, count));
  const int primitives = primitives_ + tail.primitives;
  const Bytes peak = plan.arena_bytes + plan.data_bytes + request_.device->overhead_bound(primitives);
  if (request_.budget > 0 && peak > request_.budget)
    return fail(
        Error{ErrorCode::kDoesNotFit,
              fmt::format("a batch of {} samples, a size that was not seen before, does not fit in {}", count,
                          format_bytes(request_.budget)),
              {fmt::format("with kernels for it the process would hold up to {}", format_bytes(peak))},
              {"batches of sizes that were seen before", fmt::format("--budget {}MiB", (peak + kMiB - 1) / kMiB)}});
  PLIMSOLL_TRY(session_->add_phase(std::move(tail)));
  primitives_ = primitives;
  return {};
}

// All of a batch's pieces can run before the first one does.
Status TrainerState::prepare(int64_t samples) {
  PLIMSOLL_TRY(prepare_piece(std::min(cut().micro, samples)));
  return prepare_piece(samples % cut().micro);
}

Status TrainerState::run(const Batch& batch) {
  const Status status = run_pieces(batch);
  if (!status) window_ = done_ = 0;  // what it has summed is of no use; the next begin() clears it
  return status;
}

Status TrainerState::run_pieces(const Batch& batch) {
  const BatchReader reader(open_.model, request_.graph.data);
  for (int64_t first = 0; first < batch.samples;) {
    const int64_t count = std::min(cut().micro, batch.samples - first);
    PLIMSOLL_TRY(session_->accumulate(count, [&](const BatchBuffers& into) -> Status {
      reader.copy(batch, first, count, into);
      return {};
    }));
    first += count;
  }
  done_ += batch.samples;
  return {};
}

Result<double> TrainerState::finish() {
  window_ = done_ = 0;
  PLIMSOLL_TRY(session_->apply());
  ++optimizer_.iteration;
  PLIMSOLL_ASSIGN(const Sums* sums, session_->collect());
  const auto& tallies = session_->tallies();
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
  return save_model(*session_, nullptr, open_.config_text, optimizer_, path);
}

std::string TrainerState::plan_text() const {
  PlanReport report{&open_.model, "", backend_->device().info(), budget_.bytes, budget_.margin, &found_};
  report.held_before = request_.data.held_before;
  report.in_program = true;
  return plimsoll::plan_text(report);
}

}  // namespace plimsoll
