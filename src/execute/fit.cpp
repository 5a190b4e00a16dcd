#include "execute/fit.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "data/prefetcher.h"
#include "execute/progress.h"
#include "execute/window.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Memory for the prefetcher, from the plan's data share.
class Staging {
 public:
  explicit Staging(Bytes bytes) : bytes_(bytes) {
    if (bytes > 0)
      base_ = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Staging() {
    if (bytes_ > 0 && base_ != MAP_FAILED) munmap(base_, static_cast<size_t>(bytes_));
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  bool failed() const { return base_ == MAP_FAILED; }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(base_), static_cast<size_t>(bytes_)}; }

 private:
  void* base_ = nullptr;
  Bytes bytes_;
};

// The cuts of one run: which samples each call of accumulate gets, from where a run stands.
class Cutter {
 public:
  Cutter(int64_t samples, int64_t windows, const BatchPlan& batch, const Progress& from, int64_t epochs)
      : samples_(samples),
        windows_(windows),
        batch_(batch),
        epochs_(epochs),
        epoch_(from.epoch),
        window_(from.window),
        done_(from.done) {}

  static int64_t window_size(int64_t window, int64_t samples, int64_t batch) {
    return std::min(batch, samples - window * batch);
  }

  std::optional<BatchRequest> next() {
    if (epoch_ >= epochs_ || windows_ == 0) return std::nullopt;
    const int64_t size = window_size(window_, samples_, batch_.effective);
    const BatchRequest request{epoch_, window_ * batch_.effective + done_, std::min(batch_.micro, size - done_)};
    done_ += request.count;
    if (done_ < size) return request;
    done_ = 0;
    if (++window_ < windows_) return request;
    window_ = 0;
    ++epoch_;
    return request;
  }

 private:
  int64_t samples_, windows_;
  BatchPlan batch_;
  int64_t epochs_, epoch_, window_, done_;
};

class Trainer {
 public:
  Trainer(Session& session, BatchSource& data, BatchSource* validation, const FitOptions& options,
          FitObserver& observer)
      : session_(session),
        data_(data),
        validation_(validation),
        options_(options),
        observer_(observer),
        sums_(session.tallies()) {
    running_ = sums_.means(session.tallies());
    const int64_t all = (data.samples() + batch().effective - 1) / batch().effective;
    windows_ = options.steps_per_epoch > 0 ? std::min(all, options.steps_per_epoch) : all;
  }

  Result<FitResult> run(const OptimizerState& start) {
    if (validation_ != nullptr && session_.plan().phase("evaluate") == nullptr)
      return fail(Error{ErrorCode::kBadPlan,
                        "the plan has no phase to validate with",
                        {},
                        {"make it again with the same --validation-data"}});
    progress_.optimizer = start;
    if (options_.resume && !options_.checkpoint_folder.empty()) {
      PLIMSOLL_ASSIGN(const bool found,
                      load_checkpoint(options_.checkpoint_folder, session_, progress_, sums_, options_.identity));
      if (found) result_.resumed_at = progress_.steps;
    }
    Cutter cutter(data_.samples(), windows_, batch(), progress_, options_.epochs);
    const int64_t most = batch().micro;
    Staging staging(Prefetcher::staging_bytes(data_, session_.plan().prefetch, most));
    if (staging.failed()) return fail(ErrorCode::kOutOfMemory, "the system gave no memory for the input pipeline");
    PLIMSOLL_ASSIGN(prefetcher_,
                    Prefetcher::start(
                        data_, [&] { return cutter.next(); }, session_.plan().prefetch, most, staging.span()));
    const Status status = epochs();
    prefetcher_.reset();
    PLIMSOLL_TRY(status);
    result_.optimizer = progress_.optimizer;
    return std::move(result_);
  }

 private:
  const BatchPlan& batch() const { return session_.plan().batch; }
  bool stopping() const { return options_.stop != nullptr && options_.stop->load(); }

  Status epochs() {
    for (; progress_.epoch < options_.epochs; ++progress_.epoch) {
      const auto start = Clock::now();
      if (progress_.window == 0 && progress_.done == 0) sums_.reset();
      observer_.on_epoch_begin(progress_.epoch, options_.epochs, windows_);
      for (; progress_.window < windows_; ++progress_.window) {
        PLIMSOLL_TRY(window());
        if (result_.interrupted) return {};
        if (stopping() && progress_.window + 1 < windows_) {
          ++progress_.window;
          return interrupt();
        }
      }
      progress_.window = 0;
      PLIMSOLL_ASSIGN(const bool stop_early, end_of_epoch(start));
      if (stop_early) return {};
      if (stopping() && progress_.epoch + 1 < options_.epochs) {
        ++progress_.epoch;
        return interrupt();
      }
    }
    return {};
  }

  // One optimizer step. Where the device runs ahead, what it summed is reported while it works on the next.
  Status window() {
    if (waiting_.count == 0) reported_ = Clock::now();
    const int64_t size = Cutter::window_size(progress_.window, data_.samples(), batch().effective);
    PLIMSOLL_ASSIGN(const Window next, next_window(session_, progress_.optimizer, size, options_.seed));
    PLIMSOLL_TRY(session_.begin(next, progress_.done));
    while (progress_.done < size) {
      const int64_t count = std::min(batch().micro, size - progress_.done);
      PLIMSOLL_TRY(session_.accumulate(count, [&](const BatchBuffers& into) { return prefetcher_->next(into); }));
      progress_.done += count;
      if (stopping() && progress_.done < size) {
        result_.mid_window = true;
        return interrupt();
      }
    }
    PLIMSOLL_TRY(session_.apply());
    progress_.done = 0;
    ++progress_.optimizer.iteration;
    ++progress_.steps;
    ++result_.steps;
    waiting_.steps[waiting_.count++] = {progress_.steps, progress_.window + 1, size};
    PLIMSOLL_TRY(report(session_.runs_ahead() ? 1 : 0));
    return checkpoint_if_due();
  }

  // Tells the observer of the steps made, all but the last `leave` of them.
  Status report(int leave) {
    while (waiting_.count > leave) {
      const Step step = waiting_.steps[0];
      waiting_.steps[0] = waiting_.steps[1];
      --waiting_.count;
      PLIMSOLL_ASSIGN(const Sums* sums, session_.collect());
      sums_.add(session_.tallies(), *sums, step.samples);
      sums_.means_into(running_);
      observer_.on_step({progress_.epoch, step.number, step.window, windows_, sums->tallies[0],
                         seconds_since(reported_), step.samples, &running_});
      reported_ = Clock::now();
    }
    return {};
  }

  Status checkpoint_if_due() {
    if (options_.checkpoint_folder.empty() || options_.checkpoint_every_steps == 0) return {};
    if (progress_.steps % options_.checkpoint_every_steps != 0 || progress_.window + 1 == windows_) return {};
    PLIMSOLL_TRY(report(0));
    Progress next = progress_;
    ++next.window;
    return save_checkpoint(options_.checkpoint_folder, session_, next, sums_, options_.identity);
  }

  Status interrupt() {
    result_.interrupted = true;
    PLIMSOLL_TRY(report(0));
    if (options_.checkpoint_folder.empty()) return {};
    return save_checkpoint(options_.checkpoint_folder, session_, progress_, sums_, options_.identity);
  }

  Result<bool> end_of_epoch(Clock::time_point start) {
    PLIMSOLL_TRY(report(0));
    EpochEvent event{progress_.epoch, options_.epochs, seconds_since(start), running_};
    if (validation_ != nullptr) {
      PLIMSOLL_ASSIGN(const auto metrics, evaluate(session_, *validation_, nullptr));
      for (const Metric& metric : metrics) event.metrics.push_back({"val_" + metric.name, metric.value});
    }
    observer_.on_epoch_end(event);
    const bool stop_early = wait_over(event);
    result_.history.push_back(std::move(event));
    if (!options_.checkpoint_folder.empty()) {
      Progress next = progress_;
      next.epoch = stop_early ? options_.epochs : next.epoch + 1;
      PLIMSOLL_TRY(save_checkpoint(options_.checkpoint_folder, session_, next, sums_, options_.identity));
    }
    return stop_early;
  }

  // Early stopping, as Keras decides it: by the metric's name, accuracy upwards, the rest downwards.
  bool wait_over(const EpochEvent& event) {
    if (!options_.early_stopping) return false;
    const auto found = std::find_if(event.metrics.begin(), event.metrics.end(),
                                    [&](const Metric& m) { return m.name == options_.early_stopping->metric; });
    if (found == event.metrics.end()) return false;
    const bool upwards = found->name.find("acc") != std::string::npos;
    if (!progress_.has_best || (upwards ? found->value > progress_.best : found->value < progress_.best)) {
      progress_.best = found->value;
      progress_.has_best = true;
      progress_.waited = 0;
      return false;
    }
    if (++progress_.waited < options_.early_stopping->patience) return false;
    observer_.on_note(fmt::format("stopped early: {} has not improved on {:.4g} for {} epochs", found->name,
                                  progress_.best, progress_.waited));
    return true;
  }

  Session& session_;
  BatchSource& data_;
  BatchSource* validation_;
  const FitOptions& options_;
  FitObserver& observer_;
  EpochSums sums_;
  std::vector<Metric> running_;
  struct Step {
    int64_t number, window, samples;
  };
  struct {
    Step steps[2];
    int count = 0;
  } waiting_;  // enqueued, not reported
  Clock::time_point reported_;
  std::unique_ptr<Prefetcher> prefetcher_;
  int64_t windows_ = 0;
  Progress progress_;
  FitResult result_;
};

}  // namespace

Result<FitResult> fit(Session& session, BatchSource& data, BatchSource* validation, const OptimizerState& start,
                      const FitOptions& options, FitObserver& observer) {
  return Trainer(session, data, validation, options, observer).run(start);
}

Result<std::vector<Metric>> evaluate(Session& session, BatchSource& data, const std::atomic<bool>* stop,
                                     const std::function<void(int64_t)>& progress) {
  const PhasePlan* phase = session.plan().phase("evaluate");
  if (phase == nullptr)
    return fail(Error{ErrorCode::kBadPlan,
                      "the plan has no phase to evaluate with",
                      {},
                      {"make it again with the same --validation-data"}});
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

}  // namespace plimsoll
