// Where a run stands: what a checkpoint must hold so that the rest of the run is the same to the bit.
#pragma once

#include "base/json.h"
#include "execute/checkpoint_folder.h"
#include "execute/cutter.h"
#include "execute/fit.h"

namespace plimsoll::engine {

// Sums over an epoch, in double, and their means under Keras's names.
class EpochSums {
 public:
  explicit EpochSums(const std::vector<Tally>& tallies) : sums_(tallies.size(), 0), weights_(tallies.size(), 0) {}

  void add(const std::vector<Tally>& tallies, const Sums& window, int64_t samples);
  std::vector<Metric> means(const std::vector<Tally>& tallies) const;
  void means_into(std::vector<Metric>& metrics) const;  // no allocation
  void reset();

  nlohmann::json to_json() const;
  bool from_json(const nlohmann::json& json);  // false for JSON that is no such sums, or sums of other metrics

 private:
  std::vector<double> sums_, weights_;
};

struct Progress {
  int64_t epoch = 0;   // the one under way
  int64_t window = 0;  // of it, the one under way; the number of windows if only its validation is left
  int64_t done = 0;    // samples of that window already accumulated
  int64_t steps = 0;   // optimizer steps of the run, earlier processes included
  OptimizerState optimizer;
};

struct RunState {
  Progress progress;
  EpochSums sums;
  Callbacks callbacks;
};

Status save_checkpoint(CheckpointRotation& rotation, const Session& session, const RunState& state,
                       const Progress& next, const FitOptions& options);
// False where the folder has no checkpoint yet. `notes`: what a user should know. P212 for a checkpoint that is damaged
// or of another run; then the session's values may be anything.
Result<bool> load_checkpoint(Session& session, RunState& state, const RunCut& cut, const FitOptions& options,
                             std::vector<std::string>& notes);
// Bytes of the file, up to some KiB.
Bytes expected_checkpoint_bytes(const Session& session);

}  // namespace plimsoll::engine
