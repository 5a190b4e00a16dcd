// A run opens a model, a device and data, makes a plan, and starts a session, in this order. All training, evaluation,
// prediction and planning goes through this object. It owns all of these parts and destroys each part after the parts
// that refer to it.
//
//   auto run = Run::open(options);   model, device and data are open
//   run->plan();                     a plan is found that fits the budget
//   run->start();                    its session is bound, weights are there
//   run->fit(...), run->step(...), run->evaluate(...), run->predict(...), run->save(...)
#pragma once

#include "api/length_buckets.h"
#include "api/open_backend.h"
#include "api/open_model.h"
#include "api/planning_limit.h"
#include "api/request.h"
#include "execute/fit.h"
#include "execute/window.h"
#include "report/plan_report.h"
#include "search/given_plan.h"

namespace plimsoll::engine {

class Run {
 public:
  // Opens the model that options.model names, the device and the data. Fails with P201 if the run evaluates or predicts
  // and the model has no weights.
  static Result<std::unique_ptr<Run>> open(RunOptions options);
  // Does the same with a model that is already open. Ignores options.model.
  static Result<std::unique_ptr<Run>> open(OpenModel model, RunOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Takes the batch size of an earlier plan if the user did not set one. Call it before choose_batch().
  void take_batch_of(const Plan& given);
  // Checks the options for micro-batches, chooses the batch size for --batch-size auto, and makes the request. search()
  // and plan() call this if it was not called before.
  Status choose_batch();
  // Makes the plan: the one of options.forced, or the fastest plan that fits. If no plan fits, it is the smallest plan,
  // and found().fits is false.
  Status search();
  // Does the same, but fails with P301 if no plan fits. If `given` is set, that plan is rebuilt and compared instead of
  // a search.
  Status plan(const GivenPlan* given = nullptr);
  // Runs other planning work within the same memory limit (RunOptions::limit_process).
  template <typename Work>
  auto within_planning_limit(Work work) -> decltype(work()) {
    return within_limit(options_, planning_limit(budget_, backend_->device()), std::move(work));
  }

  // bind() starts the session of the plan. load() then loads the weights, or initialises them if the file has none.
  Status bind();
  Status load();
  Status start();  // bind() and load()

  // Begins one optimizer step. `done`: samples of the window that an interrupted run already accumulated.
  Status begin(int64_t samples, int64_t done = 0);
  // Accumulates a batch of `samples` in micro-batches. `read`, Status(const BatchRequest&, const BatchBuffers&), fills
  // each micro-batch; the request says where in the batch the micro-batch begins.
  template <typename Read>
  Status accumulate(int64_t samples, const Read& read) {
    Cutter cutter = Cutter::of_batch(samples, session_->plan().batch.micro);
    PLIMSOLL_TRY(accumulate_window(*session_, cutter, read, [](const BatchRequest&) { return true; }));
    return {};
  }
  Status apply();
  // Plans phases for a batch size that the plan does not include, in the same arena. The kernels of a phase count as
  // overhead. Fails with P301 if the budget has no room for them.
  Status prepare(PhaseKind kind, int64_t samples);
  template <typename Read>
  Status step(int64_t samples, const Read& read) {
    PLIMSOLL_TRY(begin(samples));
    PLIMSOLL_TRY(accumulate(samples, read));
    return apply();
  }

  // Switches to another plan between two steps. The new plan uses the budgets, the micro-batch, the forbidden levers
  // and the forced settings of `changed`. All other options stay, and so does the budget if `changed` has none.
  // Weights, optimizer state and counters stay. Fails with P301 if no plan fits; the run then keeps its plan.
  Status replan(const RunOptions& changed);

  // Trains on all of the data.
  Result<FitResult> fit(const FitOptions& options, FitObserver& observer);
  // Trains on windows that the calling program provides. `validate` may be empty.
  Result<FitResult> fit(WindowReader& data, const Validate& validate, const FitOptions& options, FitObserver& observer);
  Result<std::vector<Metric>> evaluate(const std::atomic<bool>* stop,
                                       const std::function<void(int64_t done)>& progress);
  // Predicts in the order of the data. `write` gets each output of each batch, and `progress` gets the number of
  // samples done.
  Status predict(const std::atomic<bool>* stop, const std::function<Status(size_t output, const TensorView&)>& write,
                 const std::function<void(int64_t done)>& progress);
  Status save(const std::string& path) const { return save(path, optimizer_); }
  Status save(const std::string& path, const OptimizerState& reached) const;

  const RunOptions& options() const { return options_; }
  const OpenModel& opened() const { return open_; }
  const Model& model() const { return open_.model; }
  const Backend& backend() const { return *backend_; }
  // What plans are made for: the backend's device, with the seconds of a calibration if there is one.
  const Device& planned_device() const { return calibrated_ ? *calibrated_ : backend_->device(); }
  const DeviceInfo& device() const { return planned_device().info(); }
  const RunData& data() const { return data_; }
  const Budget& budget() const { return budget_; }
  const SearchRequest& request() const { return *request_; }
  const SearchResult& found() const { return found_; }
  PlanReport report() const;
  // The lengths that training has a plan for, each with its own; null without --buckets.
  const LengthBuckets* buckets() const { return buckets_ ? &*buckets_ : nullptr; }
  // Returns the peak of the process with all plans.
  Bytes peak_bytes() const;
  Session& session() { return *session_; }
  const Session& session() const { return *session_; }
  OptimizerState& optimizer() { return optimizer_; }
  const OptimizerState& optimizer() const { return optimizer_; }
  // Ends the session and frees its memory. bind() starts another session.
  void end_session() { session_.reset(); }

 private:
  Run(OpenModel open, RunOptions options) : options_(std::move(options)), open_(std::move(open)) {}

  Result<SearchResult> make_plan(const SearchRequest& request, const RunOptions& options);
  Status prepare_piece(PhaseKind kind, int64_t samples);
  Result<SearchRequest> bucket_request(const Model& model, int64_t samples, bool validates) const;
  Status plan_one(const GivenPlan* given);
  Status plan_all_buckets(const GivenPlan* given);
  Status bind_buckets();
  Result<FitResult> fit_buckets(const FitOptions& options, FitObserver& observer);

  // The order matters: each member may refer to those before it.
  RunOptions options_;
  OpenModel open_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Device> calibrated_;  // null: no calibration
  RunData data_;
  Budget budget_;
  std::optional<SearchRequest> request_;
  SearchResult found_;
  std::optional<LengthBuckets> buckets_;
  std::unique_ptr<Session> session_;
  OptimizerState optimizer_;
};

}  // namespace plimsoll::engine
