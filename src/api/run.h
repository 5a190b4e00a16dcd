// A run: options become a model, a device, data, a plan and a session, in this order, and whoever trains, evaluates,
// predicts or only plans does it through this object. It owns all of them, each as long as another refers to it.
//
//   auto run = Run::open(options);   model, device and data are open
//   run->plan();                     a plan is found that fits the budget
//   run->start();                    its session is bound, weights are there
//   run->fit(...), run->step(...), run->evaluate(...), run->predict(...), run->save(...)
#pragma once

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
  // Opens the model that options.model names, the device and the data. P201 where there is nothing to evaluate or
  // predict with: a model without weights.
  static Result<std::unique_ptr<Run>> open(RunOptions options);
  // The same with a model that is open already; options.model is not read.
  static Result<std::unique_ptr<Run>> open(OpenModel model, RunOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // A plan that was made before has its say in the batch where the user named none. Before choose_batch().
  void take_batch_of(const Plan& given);
  // Checks how the batch is cut, chooses it for --batch-size auto, and makes the request. The steps below do it where
  // nobody did before.
  Status choose_batch();
  // Makes the plan: options.forced, or the fastest that fits, or the smallest where none does (found().fits).
  Status search();
  // The same, but P301 where none fits. A `given` plan is made again and compared, instead of searched for.
  Status plan(const GivenPlan* given = nullptr);
  // Anything else that belongs to planning, inside the same limit of memory (RunOptions::limit_process).
  template <typename Work>
  auto within_planning_limit(Work work) -> decltype(work()) {
    return within_limit(options_, planning_limit(budget_, backend_->device()), std::move(work));
  }

  // Binds the plan's session; then weights are loaded, or initialised where the file has none.
  Status bind();
  Status load();
  Status start();  // both

  // One optimizer step at a time. `done` samples of the window were accumulated before, by a run that was interrupted.
  Status begin(int64_t samples, int64_t done = 0);
  // All of a batch of `samples`, in micro-batches: `read` fills each, Status(const BatchRequest&, const BatchBuffers&),
  // and is told where in the batch it begins.
  template <typename Read>
  Status accumulate(int64_t samples, const Read& read) {
    Cutter cutter = Cutter::of_batch(samples, session_->plan().batch.micro);
    PLIMSOLL_TRY(accumulate_window(*session_, cutter, read, [](const BatchRequest&) { return true; }));
    return {};
  }
  Status apply();
  // Plans phases for a batch of `samples` of a size that was not foreseen, inside the same arena. The kernels of a
  // phase are overhead: P301 if the budget has no room for them.
  Status prepare(PhaseKind kind, int64_t samples);
  template <typename Read>
  Status step(int64_t samples, const Read& read) {
    PLIMSOLL_TRY(begin(samples));
    PLIMSOLL_TRY(accumulate(samples, read));
    return apply();
  }

  // Goes on with another plan, between two steps: searched for, or made, with the budgets, the micro-batch, the levers
  // forbidden and the forced settings of `changed`; of everything else the run keeps what it has, and without a budget
  // the one it has too. Weights, state and what the run has counted stay. P301 where nothing fits; the run then goes on
  // with the plan it has.
  Status replan(const RunOptions& changed);

  // The loop over all of the data.
  Result<FitResult> fit(const FitOptions& options, FitObserver& observer);
  // The same over windows that a program hands in. `validate` may be empty.
  Result<FitResult> fit(WindowReader& data, const Validate& validate, const FitOptions& options, FitObserver& observer);
  Result<std::vector<Metric>> evaluate(const std::atomic<bool>* stop,
                                       const std::function<void(int64_t done)>& progress);
  // Predictions in the order of the data: `write` gets each output of each batch, `progress` the samples done.
  Status predict(const std::atomic<bool>* stop, const std::function<Status(size_t output, const TensorView&)>& write,
                 const std::function<void(int64_t done)>& progress);
  Status save(const std::string& path) const { return save(path, optimizer_); }
  Status save(const std::string& path, const OptimizerState& reached) const;

  const RunOptions& options() const { return options_; }
  const OpenModel& opened() const { return open_; }
  const Model& model() const { return open_.model; }
  const Backend& backend() const { return *backend_; }
  const DeviceInfo& device() const { return backend_->device().info(); }
  const RunData& data() const { return data_; }
  const Budget& budget() const { return budget_; }
  const SearchRequest& request() const { return *request_; }
  const SearchResult& found() const { return found_; }
  PlanReport report() const;
  Session& session() { return *session_; }
  const Session& session() const { return *session_; }
  OptimizerState& optimizer() { return optimizer_; }
  const OptimizerState& optimizer() const { return optimizer_; }
  // Ends the session and gives its memory back; bind() makes another one.
  void end_session() { session_.reset(); }

 private:
  Run(OpenModel open, RunOptions options) : options_(std::move(options)), open_(std::move(open)) {}

  Result<SearchResult> make_plan(const SearchRequest& request, const RunOptions& options);
  Status prepare_piece(PhaseKind kind, int64_t samples);

  // In the order in which each refers to those before it.
  RunOptions options_;
  OpenModel open_;
  std::unique_ptr<Backend> backend_;
  RunData data_;
  Budget budget_;
  std::optional<SearchRequest> request_;
  SearchResult found_;
  std::unique_ptr<Session> session_;
  OptimizerState optimizer_;
};

}  // namespace plimsoll::engine
