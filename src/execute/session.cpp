#include "execute/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/checked.h"

namespace plimsoll::engine {
namespace {

void set_floating(const TensorView& view, int64_t index, double value) {
  if (view.type.dtype == DType::kFloat64)
    view.as<double>()[index] = value;
  else
    view.as<float>()[index] = static_cast<float>(value);
}

template <typename T>
Poke poke_of(Bytes offset, std::span<const T> values) {
  Poke poke{offset, static_cast<Bytes>(values.size_bytes()), {}};
  assert(values.size_bytes() <= sizeof poke.data);
  std::memcpy(poke.data, values.data(), values.size_bytes());
  return poke;
}

}  // namespace

Status Session::store(const std::string& name, const std::function<Status(const TensorView&)>& write) {
  skipped_.reset();
  return arena_->store(name, write);
}

void Session::flush_pokes() {
  if (!pokes_.empty()) arena_->memory().poke(pokes_);
  pokes_.clear();
}

void Session::run(const BoundPhase& phase) {
  flush_pokes();
  if (run_instead_)
    run_instead_(phase);
  else
    run_phase(phase);
  arena_peak_ = std::max(arena_peak_, phase.end);
  bound_->has_run(phase.end);
}

Status Session::run_batch(BoundPhase& phase, const Fill& fill) {
  const auto count = static_cast<size_t>(phase.plan->samples);
  const bool staged = !staged_weights_.empty();
  BatchBuffers& slots = phase.slots;
  if (feed_) {
    PLIMSOLL_ASSIGN(const auto hosts, feed_->acquire(phase.feed));
    size_t next = 0;
    for (void*& input : slots.inputs) input = hosts[next++];
    for (void*& target : slots.targets) target = hosts[next++];
    for (float*& weight : slots.weights) weight = static_cast<float*>(hosts[next++]);
  }
  for (size_t i = 0; i < phase.weights.size() && !feed_; ++i)
    slots.weights[i] = staged ? staged_weights_[i].data() : static_cast<float*>(phase.weights[i].data);
  PLIMSOLL_TRY(fill(slots));
  for (size_t i = 0; i < phase.weights.size(); ++i) {
    for (size_t s = 0; s < count; ++s) {
      const auto weight = static_cast<double>(slots.weights[i][s]);
      weight_sums_[i] += weight;
      if (staged) set_floating(phase.weights[i], static_cast<int64_t>(s), weight);
    }
  }
  if (feed_) PLIMSOLL_TRY(feed_->submit());
  run(phase);
  return {};
}

void Session::set_real(const PersistentSlot* slot, double value) {
  if (slot == nullptr) return;
  const auto single = static_cast<float>(value);
  pokes_.push_back(slot->type.dtype == DType::kFloat64 ? poke_of<double>(slot->offset, {&value, 1})
                                                       : poke_of<float>(slot->offset, {&single, 1}));
}

void Session::set_scalar(StepScalar scalar, double value) {
  set_real(scalars_[static_cast<size_t>(scalar)], value);
}

void Session::set_integers(StepScalar scalar, std::initializer_list<int64_t> values) {
  const PersistentSlot* slot = scalars_[static_cast<size_t>(scalar)];
  if (slot != nullptr) pokes_.push_back(poke_of<int64_t>(slot->offset, {values.begin(), values.size()}));
}

void Session::set_loss_factors(int64_t samples) {
  set_scalar(StepScalar::kOne, 1);
  set_scalar(StepScalar::kSampleShare, 1 / static_cast<double>(samples));
  const auto& outputs = model().outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t rows = outputs[i].loss_is_sum ? 1 : samples * outputs[i].rows_per_sample;
    set_real(loss_factors_[i], outputs[i].loss_weight / static_cast<double>(rows));
  }
}

Status Session::begin(const Window& window, int64_t done) {
  const auto update = checked_add(window.iteration, int64_t{1});
  if (window.samples <= 0 || done < 0 || done >= window.samples || window.iteration < 0 || !update)
    return fail(ErrorCode::kInternal, fmt::format("invalid window: {} samples, {} of them done, {} updates before",
                                                  window.samples, done, window.iteration));
  set_loss_factors(window.samples);
  set_scalar(StepScalar::kLearningRate, window.learning_rate);
  set_scalar(StepScalar::kRateIfSkipped, window.rate_if_skipped);
  set_integers(StepScalar::kKnownSkips, {window.known_skips});
  set_integers(StepScalar::kIteration, {*update});
  set_integers(StepScalar::kRandom, {static_cast<int64_t>(window.seed), window.iteration});
  first_sample_ = done;
  if (done == 0) std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  if (!plan().micro_batched() || done > 0) return {};
  PLIMSOLL_ASSIGN(const BoundPhase* const phase, bound_->ready(PhaseKind::kBegin, 0));
  run(*phase);
  return {};
}

Result<BoundPhase*> Session::next_accumulate(int64_t count) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, bound_->ready(plan().gradient_phase(), count));
  set_integers(StepScalar::kFirstSample, {first_sample_});
  first_sample_ += count;
  return phase;
}

Status Session::accumulate(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, next_accumulate(count));
  return run_batch(*phase, fill);
}

Status Session::apply() {
  if (plan().micro_batched()) {
    PLIMSOLL_ASSIGN(const BoundPhase* const phase, bound_->ready(PhaseKind::kApply, 0));
    run(*phase);
  }
  request_sums();
  return {};
}

Status Session::evaluate(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, bound_->ready(PhaseKind::kEvaluate, count));
  set_loss_factors(count);
  std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  PLIMSOLL_TRY(run_batch(*phase, fill));
  request_sums();
  return {};
}

Status Session::predict(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, bound_->ready(PhaseKind::kPredict, count));
  return run_batch(*phase, fill);
}

Result<TensorView> Session::prediction(int64_t count, size_t output) {
  PLIMSOLL_ASSIGN(const BoundPhase* const phase, bound_->ready(PhaseKind::kPredict, count));
  const TensorView view = output < phase->predictions.size() ? phase->predictions[output] : TensorView{};
  if (view.data == nullptr)
    return fail(ErrorCode::kBadPlan, fmt::format("the plan's phase 'predict' has no output {}", output));
  const Memory& memory = arena_->memory();
  if (memory.host_visible()) return view;
  staged_prediction_.resize(std::max(staged_prediction_.size(), static_cast<size_t>(view.type.bytes())));
  PLIMSOLL_TRY(
      memory.read(static_cast<std::byte*>(view.data) - memory.at(0), staged_prediction_.data(), view.type.bytes()));
  return TensorView{view.type, staged_prediction_.data()};
}

}  // namespace plimsoll::engine
