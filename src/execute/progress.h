// Where a run stands: what a checkpoint must hold so that the rest of the run is the same to the bit.
#pragma once

#include "base/json.h"
#include "execute/fit.h"

namespace plimsoll {

// Sums over an epoch, in double, and their means under Keras's names.
class EpochSums {
 public:
  explicit EpochSums(const std::vector<Tally>& tallies) : sums_(tallies.size(), 0), weights_(tallies.size(), 0) {}

  void add(const std::vector<Tally>& tallies, const Sums& window, int64_t samples);
  std::vector<Metric> means(const std::vector<Tally>& tallies) const;
  void means_into(std::vector<Metric>& metrics) const;  // no allocation
  void reset();

  nlohmann::json to_json() const { return json_object({{"sums", sums_}, {"weights", weights_}}); }
  bool from_json(const nlohmann::json& json);

 private:
  std::vector<double> sums_, weights_;
};

struct Progress {
  int64_t epoch = 0;   // the one under way
  int64_t window = 0;  // of it, the one under way
  int64_t done = 0;    // samples of that window already accumulated
  int64_t steps = 0;   // optimizer steps of the run, earlier processes included
  OptimizerState optimizer;
  double best = 0;  // early stopping
  int64_t waited = 0;
  bool has_best = false;
};

Status save_checkpoint(const std::string& folder, const Session& session, const Progress& progress,
                       const EpochSums& sums, const nlohmann::json& identity);
// False where the folder has no checkpoint yet.
Result<bool> load_checkpoint(const std::string& folder, Session& session, Progress& progress, EpochSums& sums,
                             const nlohmann::json& identity);

}  // namespace plimsoll
