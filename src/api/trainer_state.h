// What a Trainer is: a model, its plan and its session, and where in a window it stands.
#pragma once

#include <functional>

#include "api/batch.h"
#include "api/job.h"
#include "execute/session.h"

namespace plimsoll {

// Must stay where it is: the session refers to the model.
class TrainerState {
 public:
  using OpenBackend = std::function<Result<std::unique_ptr<Backend>>(const JobOptions&)>;

  // `resident_before`: what the process held of the host's memory before it called us.
  static Result<std::unique_ptr<TrainerState>> create(const Description& description, const TrainerOptions& options,
                                                      Bytes resident_before,
                                                      const OpenBackend& open_backend = plimsoll::open_backend);

  Result<double> step(const Batch& batch);
  Status begin(int64_t samples);
  Status accumulate(const Batch& batch);
  Result<double> apply();
  Status save(const std::string& path) const;

  std::string plan_text() const;
  const Session& session() const { return *session_; }

 private:
  explicit TrainerState(OpenModel open) : open_(std::move(open)) {}

  const BatchPlan& cut() const { return session_->plan().batch; }
  Status start(int64_t samples);
  Status prepare(int64_t samples);
  Status prepare_piece(int64_t count);
  Status run(const Batch& batch);
  Status run_pieces(const Batch& batch);
  Result<double> finish();

  OpenModel open_;
  std::unique_ptr<Backend> backend_;
  SearchRequest request_;
  SearchResult found_;
  Budget budget_;
  std::unique_ptr<Session> session_;
  OptimizerState optimizer_;
  uint64_t seed_ = 0;
  int64_t batch_size_ = 0;
  int primitives_ = 0;  // of all phases, those added later included
  // The window under way: its samples, 0 between windows, and how many of them were given.
  int64_t window_ = 0, done_ = 0;
};

}  // namespace plimsoll
