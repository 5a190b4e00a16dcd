// What a Trainer is: a model, its plan and its session, and where in a window it stands.
#pragma once

#include "api/batch.h"
#include "api/run.h"

namespace plimsoll::engine {

class TrainerState {
 public:
  using WrapBackend = decltype(RunOptions::wrap_backend);

  // `resident_before`: what the process held of the host's memory before it called us.
  static Result<std::unique_ptr<TrainerState>> create(const Description& description, const TrainerOptions& options,
                                                      Bytes resident_before, WrapBackend wrap_backend = {});

  Result<double> step(const Batch& batch);
  Status begin(int64_t samples);
  Status accumulate(const Batch& batch);
  Result<double> apply();
  Status save(const std::string& path) const;

  std::string plan_text() const;
  const Session& session() const { return run_->session(); }

 private:
  explicit TrainerState(std::unique_ptr<Run> run);

  const BatchPlan& cut() const { return session().plan().batch; }
  Status start(int64_t samples);
  Status prepare(int64_t samples);
  Status prepare_piece(int64_t count);
  Status run(const Batch& batch);
  Result<double> finish();

  std::unique_ptr<Run> run_;
  BatchReader reader_;
  int64_t batch_size_;
  int primitives_ = 0;  // of all phases, those added later included
  // The window under way: its samples, 0 between windows, and how many of them were given.
  int64_t window_ = 0, done_ = 0;
};

}  // namespace plimsoll::engine
