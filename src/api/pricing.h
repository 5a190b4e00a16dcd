// Prices variations of a run by planning them, exactly as `plimsoll plan` with other flags would.
#pragma once

#include <map>

#include "api/run.h"

namespace plimsoll::engine {

// The plan of a variation, as numbers.
struct Priced {
  bool fits = false;
  int64_t batch = 0, micro = 0;
  Bytes peak_bytes = 0;   // of the smallest plan if none fits
  Bytes least_bytes = 0;  // 0: not asked for
  double step_seconds = 0;
  std::vector<std::string> levers;  // that the plan uses

  double seconds_per_sample() const { return batch > 0 ? step_seconds / static_cast<double>(batch) : step_seconds; }
};
Priced priced(const SearchResult& found);

// A device to plan for: the one of the run, or another one.
struct PlanningDevice {
  const Backend* backend = nullptr;
  const Device* device = nullptr;  // the backend's, or with the seconds of a calibration
  std::unique_ptr<Backend> own_backend = nullptr;
  std::unique_ptr<Device> own_calibrated = nullptr;
};

class Pricing {
 public:
  explicit Pricing(Run& run) : run_(run) {}

  // The options of the run, with the batch size that --batch-size auto chose.
  RunOptions options() const;
  const Run& run() const { return run_; }

  // For graphs that take long to plan: where a plan without levers does not fit, price() searches for one with levers
  // only for the first `count` variations, and fails for the others.
  void limit_searches(int count) { searches_left_ = count; }

  // Fails as the command itself would.
  Result<PlanningDevice> device(const RunOptions& options) const;
  // `find_least`: also Priced::least_bytes. `model`: the run's, or a changed one with inputs and outputs of the same
  // types.
  Result<Priced> price(const RunOptions& options, bool find_least = false, const Model* model = nullptr,
                       const PlanningDevice* device = nullptr) const;
  // Returns the model of the run after the changes in options.what_if and options.overrides.
  Result<Model> changed_model(const RunOptions& options) const;
  // Returns the seconds and bytes of `options` on another precision or device: opens it first.
  Result<Priced> price_elsewhere(const RunOptions& options, bool find_least = false) const;
  // The largest power of two up to `limit` that fits with all allowed levers; 0 if none does. `model` and `device`: as
  // for price(); another precision may need another model, because float16 needs a loss scale.
  Result<int64_t> largest_batch_that_fits(RunOptions options, int64_t limit, const Model* model = nullptr,
                                          const PlanningDevice* device = nullptr) const;

 private:
  Result<Priced> plan(const RunOptions& options, bool find_least, const Model* model,
                      const PlanningDevice* device) const;

  Run& run_;
  mutable std::optional<int> searches_left_;
  mutable std::map<std::string, Result<Priced>> known_;  // by everything that may differ between two variations
};

}  // namespace plimsoll::engine
