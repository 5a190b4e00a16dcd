// What happens at the end of an epoch by the value of a metric, decided as Keras 3.15's callbacks of these names do.
//
// Keras compares in float32, so this does too. A metric that is NaN in the first epoch is the best for ever after, as
// there: no value is less than NaN.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/model.h"

namespace plimsoll::engine {

struct Metric {
  std::string name;
  double value = 0;
};

struct EarlyStopping {  // min_delta 0
  std::string metric;
  int64_t patience = 0;
  bool restore_best = false;
};

struct ReduceLrOnPlateau {  // min_delta 1e-4, cooldown 0, min_lr 0
  std::string metric;
  int64_t patience = 0;
  double factor = 0.1;
};

struct SaveBest {  // ModelCheckpoint(save_best_only=True)
  std::string metric;
  std::string path;
};

struct CallbackOptions {
  std::optional<EarlyStopping> early_stopping;
  std::optional<ReduceLrOnPlateau> reduce_lr;
  std::optional<SaveBest> save_best;
};

// The best value of one metric so far, and for how many epochs it has been that.
class Monitor {
 public:
  Monitor(std::string metric, bool larger_is_better, double min_delta)
      : metric_(std::move(metric)), larger_is_better_(larger_is_better), min_delta_(min_delta) {}

  const std::string& metric() const { return metric_; }
  const double* value_in(const std::vector<Metric>& metrics) const;
  bool improves(double value) const;
  nlohmann::json to_json() const;
  // False for JSON that is no state of a monitor, or of one that watched another metric.
  bool from_json(const nlohmann::json& json);

  std::optional<double> best;
  int64_t waited = 0;

 private:
  std::string metric_;
  bool larger_is_better_;
  double min_delta_;
};

struct EpochDecision {
  bool stop = false;
  bool keep_weights = false;  // they are the best so far: early stopping restores them at the end
  bool save_model = false;    // by SaveBest
  double learning_rate = 0;
  std::vector<std::string> notes;
};

class Callbacks {
 public:
  Callbacks(const CallbackOptions& options, const std::vector<Tally>& tallies);

  EpochDecision end_of_epoch(int64_t epoch, const std::vector<Metric>& metrics, double learning_rate);
  bool stopped() const { return stopped_; }

  // Where the weights to restore are: the step after which they were kept.
  std::optional<int64_t> best_step, best_epoch;

  // With the state of a checkpoint the run decides as if it had never ended. State of a flag that says something else
  // now is left behind, and `notes` says so. False for JSON that is no such state.
  nlohmann::json to_json() const;
  bool from_json(const nlohmann::json& json, std::vector<std::string>& notes);

 private:
  bool read_early_stopping(const nlohmann::json& json, std::vector<std::string>& notes);

  CallbackOptions options_;
  std::optional<Monitor> stopping_, plateau_, saving_;
  bool stopped_ = false;
};

// The most steps or epochs that a file may speak of. No run gets there, and above it a double misses whole numbers.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// Numbers that JSON has no form for ("nan", "inf", "-inf") stand as text.
nlohmann::json number_to_json(double value);
std::optional<double> number_from_json(const nlohmann::json& json);

}  // namespace plimsoll::engine
