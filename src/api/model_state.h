// The implementation of plimsoll::Model: a run, and its position in a window or a fit.
#pragma once

#include "api/batch.h"
#include "api/described.h"
#include "api/run.h"
#include "execute/progress.h"
#include "plimsoll/model.h"

namespace plimsoll::engine {

class ModelState {
 public:
  using WrapBackend = decltype(RunOptions::wrap_backend);
  using TakeRows = std::function<Result<void>(size_t output, const ArrayView&)>;

  // `resident_before`: the bytes of host memory that the process held before it called Plimsoll.
  static Result<std::unique_ptr<ModelState>> create(const DescribedModel& description, const plimsoll::Options& options,
                                                    Bytes resident_before, WrapBackend wrap_backend = {});
  // Returns a run that is planned but holds no memory.
  static Result<std::unique_ptr<Run>> plan_run(const DescribedModel& description, const plimsoll::Options& options,
                                               Bytes resident_before, WrapBackend wrap_backend = {});
  ~ModelState() { run_->backend().enter_thread(); }  // another thread may have made the model
  static Result<plimsoll::Plan> plan_only(const DescribedModel& description, const plimsoll::Options& options,
                                          Bytes resident_before);

  Result<History> fit(plimsoll::Model& self, const Data& data, const plimsoll::FitOptions& options);
  Result<Logs> step(const Batch& batch);
  Status begin(int64_t samples);
  Status accumulate(const Batch& batch);
  Result<Logs> apply();
  Result<Logs> test(const Batch& batch);
  Logs metrics() const;
  void reset_metrics() { running_.reset(); }
  Result<Logs> evaluate(const Data& data);
  Status predict(const Data& data, const TakeRows& take);
  Result<std::vector<Array>> predict(const Data& data);

  std::vector<WeightInfo> weights() const;
  Result<Array> weight(const std::string& name) const;
  Status set_weight(const std::string& name, const ArrayView& values);
  double learning_rate() const;
  Status set_learning_rate(double rate);
  Status set_iterations(int64_t iterations);
  std::vector<WeightInfo> optimizer_variables() const;
  Result<Array> optimizer_variable(const std::string& name) const;
  Status set_optimizer_variable(const std::string& name, const ArrayView& values);
  Status save(const std::string& path) const;
  Status save_checkpoint(const std::string& path) const;
  Status load_checkpoint(const std::string& path);

  plimsoll::Plan plan() const;
  Run& run() { return *run_; }
  const Run& run() const { return *run_; }

 private:
  friend class FitBridge;
  explicit ModelState(std::unique_ptr<Run> run);

  const BatchPlan& cut() const { return session().plan().batch; }
  Session& session() const { return run_->session(); }
  Status load_nested(const std::vector<NestedWeights>& nested);
  Status check_trains() const;  // fails with P201 if Options::trains is false
  // Fails with P201 if a window or a fit is in progress. `call` names the refused function.
  Status check_between(const char* call) const;
  Status start(int64_t samples);
  Status run_batch(const BoundBatch& batch);
  Result<Logs> finish();
  const Weight* find_weight(const std::string& name) const;
  Result<StateVariable> find_state(const std::string& name) const;
  // A value of the arena, which has `shape` in Keras.
  Result<Array> copy_of(const std::string& value, const Shape& shape) const;
  Status set_value(const std::string& value, const Shape& shape, const std::string& label, const ArrayView& values);
  // Adds sums to metrics() and returns the means of these sums alone.
  Logs report(const Sums& sums, int64_t samples);
  nlohmann::json identity() const;
  Status check_evaluates() const;
  Status evaluate_batch(const BoundBatch& batch, const std::atomic<bool>* stop, EpochSums& sums);
  // Evaluates without a check of the order of calls, because fit() validates with it.
  Result<Logs> evaluate_all(const Data& data, const std::atomic<bool>* stop);
  Status check_fit(const Data& data, const plimsoll::FitOptions& options) const;
  Status check_monitor(const char* option, const std::string& metric, bool validates) const;
  Result<FitOptions> fit_options(const plimsoll::FitOptions& options, bool validates);
  template <typename Use>
  Status for_each_batch(const Data& data, bool targets, const Use& use);

  std::unique_ptr<Run> run_;
  BatchReader reader_;
  EpochSums running_;  // of metrics()
  // The current window: its number of samples (0 between windows) and how many of them were accumulated.
  int64_t window_ = 0, done_ = 0;
  bool fitting_ = false;  // fit() is running, so a call may come from a callback
};

Logs logs_of(const std::vector<Metric>& metrics);

// Converts the plan of a run to the public type.
plimsoll::Plan plan_data(const Run& run);

}  // namespace plimsoll::engine
