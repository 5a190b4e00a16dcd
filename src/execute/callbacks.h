// Callbacks that act at the end of an epoch depending on a metric. They decide as the Keras 3.15 callbacks of the same
// names do.
//
// Like Keras, they compare in float32. Also like Keras, a metric that is NaN in the first epoch stays the best for
// ever, because no value is less than NaN.
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
  std::vector<double> elements = {};  // of a metric that is a vector; `value` is then their mean, as in Keras's log
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

// The best value of one metric so far, and the number of epochs since then.
class Monitor {
 public:
  Monitor(std::string metric, bool larger_is_better, double min_delta)
      : metric_(std::move(metric)), larger_is_better_(larger_is_better), min_delta_(min_delta) {}

  const std::string& metric() const { return metric_; }
  const double* value_in(const std::vector<Metric>& metrics) const;
  bool improves(double value) const;
  nlohmann::json to_json() const;
  // Returns false if the JSON is not the state of a monitor, or if that monitor watched another metric.
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
  bool keep_weights = false;  // the weights are the best so far, and early stopping restores them at the end
  bool save_model = false;    // for SaveBest
  double learning_rate = 0;
  std::vector<std::string> notes;
};

class Callbacks {
 public:
  Callbacks(const CallbackOptions& options, const std::vector<Tally>& tallies);

  EpochDecision end_of_epoch(int64_t epoch, const std::vector<Metric>& metrics, double learning_rate);
  bool stopped() const { return stopped_; }

  // The step and the epoch after which the weights to restore were kept.
  std::optional<int64_t> best_step, best_epoch;

  // With the state of a checkpoint, a resumed run decides as if it had never been interrupted. State of a flag that has
  // another value now is dropped, and `notes` says so. from_json() returns false if the JSON is not such a state.
  nlohmann::json to_json() const;
  bool from_json(const nlohmann::json& json, std::vector<std::string>& notes);

 private:
  bool read_early_stopping(const nlohmann::json& json, std::vector<std::string>& notes);

  CallbackOptions options_;
  std::optional<Monitor> stopping_, plateau_, saving_;
  bool stopped_ = false;
};

// Upper bound on steps and epochs in a file. No run reaches it, and above it a double cannot represent every whole
// number.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// Numbers that JSON cannot represent are written as strings: "nan", "inf", "-inf".
nlohmann::json number_to_json(double value);
std::optional<double> number_from_json(const nlohmann::json& json);

}  // namespace plimsoll::engine
