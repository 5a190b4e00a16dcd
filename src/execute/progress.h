// The progress of a run. A checkpoint stores it, so that a resumed run gives the same results to the bit.
#pragma once

#include "base/json.h"
#include "execute/checkpoint_folder.h"
#include "execute/cutter.h"
#include "execute/fit.h"

namespace plimsoll::engine {

// Sums of the loss and metrics over an epoch, in double, and the values that Keras reports under its names.
class EpochSums {
 public:
  explicit EpochSums(const std::vector<Tally>& tallies);

  void add(const std::vector<Tally>& tallies, const Sums& window, int64_t samples);
  void add(const EpochSums& other);  // of the same tallies
  std::vector<Metric> means(const std::vector<Tally>& tallies) const;
  void means_into(std::vector<Metric>& metrics) const;
  void reset();

  nlohmann::json to_json() const;
  bool from_json(const nlohmann::json& json);  // returns false if the JSON is malformed or has sums of other metrics

 private:
  std::vector<Tally> tallies_;
  std::vector<double> sums_;     // all numbers of each tally
  std::vector<double> weights_;  // one per tally
};

struct Progress {
  int64_t epoch = 0;   // the current epoch
  int64_t window = 0;  // the current window of the epoch; equals the number of windows if only validation remains
  int64_t done = 0;    // samples of that window that are already accumulated
  int64_t steps = 0;   // optimizer steps of the run, including those of earlier processes
  OptimizerState optimizer;
};

struct RunState {
  Progress progress;
  EpochSums sums;
  Callbacks callbacks;
};

Status save_checkpoint(CheckpointRotation& rotation, const Session& session, const RunState& state,
                       const Progress& next, const FitOptions& options);
// Returns false if the folder has no checkpoint yet. Adds notes for the user to `notes`. Fails with P212 if the
// checkpoint is damaged or belongs to another run; the session's values are then undefined.
Result<bool> load_checkpoint(Session& session, RunState& state, const RunCut& cut, const FitOptions& options,
                             std::vector<std::string>& notes);
// Estimates the size of the checkpoint file, to within some KiB.
Bytes expected_checkpoint_bytes(const Session& session);

}  // namespace plimsoll::engine
