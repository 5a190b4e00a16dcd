#include "execute/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "execute/best_weights.h"
#include "execute/progress.h"
#include "execute/window.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class FitLoop {
 public:
  FitLoop(Session& session, WindowReader& data, const Validate& validate, OptimizerState& reached,
          const FitOptions& options, FitObserver& observer)
      : session_(session),
        data_(data),
        validate_(validate),
        reached_(reached),
        options_(options),
        observer_(observer),
        state_{{}, EpochSums(session.tallies()), Callbacks(options.callbacks, session.tallies())},
        cut_(data.cut()),
        rotation_(options.checkpoint_folder, options.keep_checkpoints),
        best_(options.checkpoint_folder, options.best_weights_beside),
        every_step_(observer.needs_every_step()),
        times_reading_(observer.times_reading()),
        watches_pieces_(observer.watches_micro_batches()),
        switches_plans_(data.switches_plans()) {
    running_ = sums_.means(session.tallies());
    own_ = running_;
  }

  Result<FitResult> run() {
    if (cut_.windows == 0) return fail(ErrorCode::kBadPlan, "the plan has no batch to train with");
    if (validate_ && session_.plan().phase(PhaseKind::kEvaluate) == nullptr)
      return fail(Error{ErrorCode::kBadPlan,
                        "the plan has no phase to validate with",
                        {},
                        {"make the plan again with the same --validation-data"}});
    progress_.optimizer = reached_;
    if (options_.resume && !options_.checkpoint_folder.empty()) PLIMSOLL_TRY(resume());
    PLIMSOLL_TRY(data_.start(options_.epochs, {progress_.epoch, progress_.window, progress_.done}));
    const Status status = state_.callbacks.stopped() ? use_averages(session_) : epochs();
    reached_ = progress_.optimizer;
    PLIMSOLL_TRY(status);
    if (!result_.interrupted) PLIMSOLL_TRY(restore_best());
    result_.stopped_early = state_.callbacks.stopped();
    result_.optimizer = progress_.optimizer;
    return std::move(result_);
  }

 private:
  const BatchPlan& batch() const { return cut_.batch; }
  bool stopping() const { return options_.stop != nullptr && options_.stop->load(); }

  Status resume() {
    std::vector<std::string> notes;
    PLIMSOLL_ASSIGN(const bool found, load_checkpoint(session_, state_, cut_, options_, notes));
    if (!found) return {};
    result_.resumed_at = progress_.steps;
    rotation_.found(progress_.steps);
    observer_.on_checkpoint(progress_.steps);
    for (const std::string& note : notes) observer_.on_note("note: " + note);
    return {};
  }

  // Calls the observer and applies its changes to the learning rate and the stop flag.
  template <typename Call>
  Status tell(const Call& call) {
    FitControl control{progress_.optimizer.learning_rate, false};
    reached_ = progress_.optimizer;
    const Status status = call(control);
    progress_.optimizer.learning_rate = control.learning_rate;
    result_.stopped = result_.stopped || control.stop;
    return status;
  }

  Status epochs() {
    PLIMSOLL_TRY(tell([&](FitControl& control) { return observer_.on_train_begin(progress_.steps, control); }));
    for (; progress_.epoch < options_.epochs; ++progress_.epoch) {
      const auto start = Clock::now();
      if (progress_.window == 0 && progress_.done == 0) sums_.reset();
      const int64_t windows = is_unknown(cut_) ? 0 : cut_.windows;
      PLIMSOLL_TRY(tell([&](FitControl& control) {
        return observer_.on_epoch_begin(progress_.epoch, options_.epochs, windows, control);
      }));
      PLIMSOLL_TRY(windows_of_epoch());
      if (result_.interrupted) return {};
      PLIMSOLL_ASSIGN(const bool go_on, end_of_epoch(start));
      if (!go_on) break;
      if (stopping() && progress_.epoch + 1 < options_.epochs) {
        ++progress_.epoch;
        return interrupt();
      }
    }
    if (result_.interrupted) return {};
    PLIMSOLL_TRY(use_averages(session_));
    return tell([&](FitControl& control) { return observer_.on_train_end(control); });
  }

  Status windows_of_epoch() {
    for (;; ++progress_.window) {
      if (result_.stopped || (options_.steps_per_epoch > 0 && progress_.window >= options_.steps_per_epoch)) return {};
      PLIMSOLL_ASSIGN(const auto size, data_.next_window(progress_.epoch, progress_.window));
      if (!size) return {};
      PLIMSOLL_TRY(window(*size));
      if (result_.interrupted) return {};
      if (stopping() && progress_.window + 1 < cut_.windows) {
        ++progress_.window;
        return interrupt();
      }
    }
  }

  // One optimizer step. If the device runs ahead, the sums of this step are reported while the device computes the next
  // step.
  Status window(int64_t size) {
    if (waiting_.count == 0) reported_ = Clock::now();
    PLIMSOLL_ASSIGN(const Window next, next_window(session_, progress_.optimizer, size, options_.seed));
    PLIMSOLL_TRY(session_.begin(next, progress_.done));
    const auto read = [&](const BatchRequest& piece, const BatchBuffers& into) {
      return times_reading_ ? timed_read(piece, into) : data_.read(piece, into);
    };
    const BatchPlan cut{batch().effective, session_.plan().batch.micro};
    Cutter cutter = Cutter::of_window(cut, {progress_.epoch, progress_.window, progress_.done}, size);
    Status watched;
    PLIMSOLL_ASSIGN(const bool whole, accumulate_window(session_, cutter, read, [&](const BatchRequest& piece) {
                      progress_.done += piece.count;
                      if (watches_pieces_ && watched) watched = on_piece(piece.count, size);
                      return switches_plans_ || !stopping();
                    }));
    PLIMSOLL_TRY(watched);
    if (!whole) {
      result_.mid_window = true;
      return interrupt();
    }
    PLIMSOLL_TRY(session_.apply());
    progress_.done = 0;
    ++progress_.optimizer.iteration;
    ++progress_.steps;
    ++result_.steps;
    waiting_.steps[waiting_.count++] = {progress_.steps, progress_.window + 1, size};
    PLIMSOLL_TRY(report(session_.runs_ahead() && !every_step_ && !switches_plans_ ? 1 : 0));
    return checkpoint_if_due();
  }

  Status on_piece(int64_t samples, int64_t window) {
    return observer_.on_micro_batch(progress_.steps, samples, progress_.done, window);
  }

  Status timed_read(const BatchRequest& cut, const BatchBuffers& into) {
    const auto start = Clock::now();
    const Status status = data_.read(cut, into);
    observer_.on_read(seconds_since(start));
    return status;
  }

  // Reports the finished steps to the observer, except for the last `leave` of them.
  Status report(int leave) {
    while (waiting_.count > leave) {
      const Step step = waiting_.steps[0];
      waiting_.steps[0] = waiting_.steps[1];
      --waiting_.count;
      PLIMSOLL_ASSIGN(const Sums* sums, session_.collect());
      sums_.add(session_.tallies(), *sums, step.samples);
      sums_.means_into(running_);
      if (every_step_) {
        EpochSums own(session_.tallies());
        own.add(session_.tallies(), *sums, step.samples);
        own.means_into(own_);
      }
      const StepEvent event{progress_.epoch,
                            step.number,
                            step.window,
                            is_unknown(cut_) ? 0 : cut_.windows,
                            sums->tallies[0],
                            seconds_since(reported_),
                            step.samples,
                            &running_,
                            every_step_ ? &own_ : nullptr,
                            data_.times().consumer};
      PLIMSOLL_TRY(tell([&](FitControl& control) { return observer_.on_step(event, control); }));
      reported_ = Clock::now();
    }
    return {};
  }

  Status checkpoint(const Progress& next) {
    if (options_.checkpoint_folder.empty()) return {};
    if (switches_plans_) PLIMSOLL_TRY(session_.use(0));  // a resumed run begins with the first plan
    PLIMSOLL_TRY(save_checkpoint(rotation_, session_, state_, next, options_));
    observer_.on_checkpoint(next.steps);
    return {};
  }

  Status checkpoint_if_due() {
    if (options_.checkpoint_folder.empty() || options_.checkpoint_every_steps == 0) return {};
    if (progress_.steps % options_.checkpoint_every_steps != 0 || progress_.window + 1 == cut_.windows) return {};
    PLIMSOLL_TRY(report(0));
    Progress next = progress_;
    ++next.window;
    return checkpoint(next);
  }

  Status interrupt() {
    result_.interrupted = true;
    PLIMSOLL_TRY(report(0));
    return checkpoint(progress_);
  }

  // Returns whether another epoch may follow.
  Result<bool> end_of_epoch(Clock::time_point start) {
    PLIMSOLL_TRY(report(0));
    sums_.means_into(running_);  // needed if an earlier process made all steps of this epoch
    EpochEvent event{progress_.epoch, options_.epochs, 0, running_, progress_.optimizer.learning_rate};
    if (validate_) {
      if (switches_plans_) PLIMSOLL_TRY(session_.use(0));
      auto metrics = validate_();
      // The resumed run does the validation. To finish it here could take longer than the sender of the signal
      // waits.
      if (!metrics && metrics.error().code == ErrorCode::kInterrupted) {
        PLIMSOLL_TRY(interrupt());
        return false;
      }
      PLIMSOLL_TRY(metrics);
      for (const Metric& metric : *metrics)
        event.metrics.push_back({"val_" + metric.name, metric.value, metric.elements});
    }
    progress_.window = 0;
    event.seconds = seconds_since(start);
    PLIMSOLL_TRY(tell([&](FitControl& control) { return observer_.on_epoch_end(event, control); }));
    PLIMSOLL_TRY(act_on(event));
    result_.history.push_back(std::move(event));
    Progress next = progress_;
    ++next.epoch;
    PLIMSOLL_TRY(checkpoint(next));
    return !state_.callbacks.stopped() && !result_.stopped;
  }

  Status act_on(const EpochEvent& event) {
    const EpochDecision decision =
        state_.callbacks.end_of_epoch(event.epoch, event.metrics, progress_.optimizer.learning_rate);
    if (decision.keep_weights) {
      PLIMSOLL_TRY(best_.keep(session_, progress_.steps));
      state_.callbacks.best_step = progress_.steps;
    }
    if (decision.save_model && options_.save_best) PLIMSOLL_TRY(options_.save_best(progress_.optimizer));
    progress_.optimizer.learning_rate = decision.learning_rate;
    for (const std::string& note : decision.notes) observer_.on_note(note);
    return {};
  }

  // Restores the best weights at the end of training, stopped early or not, as Keras does.
  Status restore_best() {
    const auto& early = options_.callbacks.early_stopping;
    if (!early || !early->restore_best || !state_.callbacks.best_step) return {};
    PLIMSOLL_TRY(best_.restore(session_, *state_.callbacks.best_step));
    observer_.on_note(fmt::format("restored the weights of epoch {}, the best by {}",
                                  state_.callbacks.best_epoch.value_or(0) + 1, early->metric));
    return {};
  }

  Session& session_;
  WindowReader& data_;
  const Validate& validate_;
  OptimizerState& reached_;
  const FitOptions& options_;
  FitObserver& observer_;
  RunState state_;
  Progress& progress_ = state_.progress;
  EpochSums& sums_ = state_.sums;
  RunCut cut_;
  CheckpointRotation rotation_;
  BestWeights best_;
  std::vector<Metric> running_, own_;
  struct Step {
    int64_t number, window, samples;
  };
  struct {
    Step steps[2];
    int count = 0;
  } waiting_;  // steps that are enqueued but not yet reported
  Clock::time_point reported_;
  bool every_step_, times_reading_, watches_pieces_, switches_plans_;
  FitResult result_;
};

}  // namespace

Result<FitResult> fit(Session& session, WindowReader& data, const Validate& validate, OptimizerState& reached,
                      const FitOptions& options, FitObserver& observer) {
  return FitLoop(session, data, validate, reached, options, observer).run();
}

Result<FitResult> fit(Session& session, BatchSource& data, BatchSource* validation, const OptimizerState& start,
                      const FitOptions& options, FitObserver& observer) {
  PositionReader reader(data, session.plan().batch, options.steps_per_epoch,
                        static_cast<int>(session.plan().settings.of(kPrefetch)));
  Validate validate;
  if (validation != nullptr) validate = [&] { return evaluate(session, *validation, options.stop); };
  OptimizerState reached = start;
  PLIMSOLL_ASSIGN(FitResult result, fit(session, reader, validate, reached, options, observer));
  result.data = reader.times();
  result.data.rows = data.row_times();
  result.data.readers = data.readers();
  return result;
}

Result<std::vector<Metric>> evaluate(Session& session, BatchSource& data, const std::atomic<bool>* stop,
                                     const std::function<void(int64_t)>& progress) {
  const PhasePlan* phase = session.plan().phase(PhaseKind::kEvaluate);
  if (phase == nullptr)
    return fail(Error{ErrorCode::kBadPlan,
                      "the plan has no phase to evaluate with",
                      {},
                      {"make the plan again with the same --validation-data"}});
  EpochSums sums(session.tallies());
  for (int64_t first = 0; first < data.samples();) {
    if (stop != nullptr && stop->load())
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} samples", first, data.samples()));
    const int64_t count = std::min(phase->samples, data.samples() - first);
    PLIMSOLL_TRY(session.evaluate(count, [&](const BatchBuffers& into) { return data.read(0, first, count, into); }));
    PLIMSOLL_ASSIGN(const Sums* batch, session.collect());
    sums.add(session.tallies(), *batch, count);
    first += count;
    if (progress) progress(first);
  }
  return sums.means(session.tallies());
}

}  // namespace plimsoll::engine
