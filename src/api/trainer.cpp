#include "api/job.h"
#include "base/json.h"
#include "data/random.h"
#include "device/process_memory.h"
#include "execute/window.h"
#include "plimsoll/plimsoll.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plimsoll {

struct Trainer::State {
  OpenModel open;
  std::unique_ptr<Backend> backend;
  SearchRequest request;
  SearchResult found;
  Budget budget;
  std::unique_ptr<Session> session;
  OptimizerState optimizer;
  uint64_t seed = 0;
  int64_t window = 0, done = 0;

  Status run(const Batch& batch);
};

Trainer::Trainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<Trainer> Trainer::create(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss,
                                const TrainerOptions& options) {
  const Bytes held_before = resident_bytes();
  auto state = std::make_unique<State>();
  Description description;
  description.config = nlohmann::json::parse(model.config());
  description.compile_config = json_object(
      {{"optimizer", nlohmann::json::parse(optimizer.config)}, {"loss", nlohmann::json::parse(loss.config)}});
  PLIMSOLL_ASSIGN(OpenModel open, open_description(description, "", {}));
  state->open = std::move(open);

  JobOptions job;
  job.batch_size = options.batch_size;
  job.accumulation_steps = options.gradient_accumulation_steps;
  if (options.micro_batch > 0) job.micro_batch = options.micro_batch;
  if (!options.budget.empty()) {
    PLIMSOLL_ASSIGN(job.budget, parse_bytes(options.budget));
  }
  job.threads = options.threads;
  job.memory_growth = choose_memory_growth(false, std::getenv(kForceGrowth)).on;
  PLIMSOLL_ASSIGN(state->backend, open_backend(job));
  state->budget = choose_budget(job, state->backend->device().info());
  state->request = base_request(job, state->open.model, state->backend->device(), DType::kFloat32,
                                assumed_data_types(state->open.model, false), state->budget);
  state->request.data.fixed = held_before;
  PLIMSOLL_ASSIGN(state->found, search(state->request));
  if (!state->found.fits) return fail(does_not_fit(state->request, state->found));
  PLIMSOLL_ASSIGN(state->session, Session::create(state->open.model, state->found.plan, *state->backend,
                                                  state->request.graph, held_before));
  PLIMSOLL_TRY(initialize_weights(*state->session, options.seed));
  state->optimizer.learning_rate = state->open.model.optimizer().learning_rate;
  state->seed = options.seed;
  return Trainer(std::move(state));
}

// A batch in micro-batches; one of an unforeseen size is planned when it is first seen, inside the same arena.
Status Trainer::State::run(const Batch& batch) {
  const BatchPlan& cut = session->plan().batch;
  const Bytes x_bytes = open.model.inputs()[0].sample.elements() * static_cast<Bytes>(sizeof(float));
  const Port& output = open.model.outputs()[0];
  const auto* targets =
      output.sparse_labels ? static_cast<const void*>(batch.labels) : static_cast<const void*>(batch.targets);
  if (batch.x == nullptr || targets == nullptr)
    return fail(ErrorCode::kDataShape, output.sparse_labels ? "this loss reads integer labels: Batch::labels"
                                                            : "this loss reads targets: Batch::targets");
  const Bytes y_bytes = output.target.elements() * 4;
  for (int64_t first = 0; first < batch.samples;) {
    const int64_t count = std::min(cut.micro, batch.samples - first);
    if (!session->can_accumulate(count)) {
      PLIMSOLL_ASSIGN(PhasePlan tail,
                      plan_tail(request, session->plan(), cut.micro < cut.effective ? "accumulate" : "train", count));
      PLIMSOLL_TRY(session->add_phase(std::move(tail)));
    }
    PLIMSOLL_TRY(session->accumulate(count, [&](const BatchBuffers& into) -> Status {
      std::memcpy(into.inputs[0], reinterpret_cast<const std::byte*>(batch.x) + first * x_bytes,
                  static_cast<size_t>(count * x_bytes));
      std::memcpy(into.targets[0], static_cast<const std::byte*>(targets) + first * y_bytes,
                  static_cast<size_t>(count * y_bytes));
      return {};
    }));
    first += count;
  }
  done += batch.samples;
  return {};
}

Result<void> Trainer::begin(int64_t samples) {
  State& s = *state_;
  PLIMSOLL_ASSIGN(const Window next, next_window(*s.session, s.optimizer, samples, s.seed));
  s.window = samples;
  s.done = 0;
  return s.session->begin(next);
}

Result<void> Trainer::accumulate(const Batch& batch) {
  State& s = *state_;
  if (s.done + batch.samples > s.window)
    return fail(ErrorCode::kUsage, fmt::format("the window was begun for {} samples, this batch makes {}", s.window,
                                               s.done + batch.samples));
  const BatchPlan& cut = s.session->plan().batch;
  if (cut.micro == cut.effective && batch.samples < s.window)
    return fail(Error{ErrorCode::kUsage,
                      "this trainer was planned for whole batches",
                      {},
                      {"TrainerOptions.gradient_accumulation_steps above 1"}});
  return s.run(batch);
}

Result<double> Trainer::apply() {
  State& s = *state_;
  if (s.done != s.window)
    return fail(ErrorCode::kUsage, fmt::format("the window was begun for {} samples, {} were given", s.window, s.done));
  PLIMSOLL_TRY(s.session->apply());
  ++s.optimizer.iteration;
  return s.session->tally("loss");
}

Result<double> Trainer::step(const Batch& batch) {
  PLIMSOLL_TRY(begin(batch.samples));
  PLIMSOLL_TRY(accumulate(batch));
  return apply();
}

std::string Trainer::plan() const {
  return plan_text({&state_->open.model, "", state_->backend->device().info(), state_->budget.bytes,
                    state_->budget.margin, &state_->found});
}

int64_t Trainer::arena_planned_bytes() const {
  return state_->session->plan().arena_bytes;
}
int64_t Trainer::arena_peak_bytes() const {
  return state_->session->arena_peak_bytes();
}

Result<void> Trainer::save(const std::string& path) const {
  return save_model(*state_->session, nullptr, state_->open.config_text, state_->optimizer, path);
}

std::vector<float> random_uniform(const std::vector<int64_t>& shape, uint64_t seed) {
  return random_uniform(Shape(shape), seed);
}

std::vector<Batch> batches(const std::vector<float>& x, const std::vector<int32_t>& labels, int64_t batch_size) {
  const auto samples = static_cast<int64_t>(labels.size());
  const int64_t row = samples == 0 ? 0 : static_cast<int64_t>(x.size()) / samples;
  std::vector<Batch> list;
  for (int64_t first = 0; first < samples; first += batch_size)
    list.push_back({x.data() + first * row, labels.data() + first, nullptr, std::min(batch_size, samples - first)});
  return list;
}

}  // namespace plimsoll
