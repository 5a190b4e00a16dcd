// The one set of options that a run is made with. The program's flags, the C++ interface's TrainerOptions, the tests
// and the benchmarks all fill in this; api/run.h makes a model, a plan and a session of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "device/kernel.h"
#include "model/model.h"

namespace plimsoll::engine {

// The data of a run. Where they lie in no file, a program hands in batches, and says here what is known of them.
struct DataOptions {
  std::string data, validation_data, class_weight;  // as the flags of these names have it; empty: none
  double validation_split = 0;
  int64_t validation_batch = 0;  // of predictions beside training too; 0: the batch size
  bool shuffle = true;
  bool reads_ahead = true;  // the next batch is read while one is computed: `fit` does, the C++ Trainer does not

  // Only without files.
  bool sample_weights = false;
  int64_t samples = 0;  // 0: unknown
  bool validates = false;
  int64_t validation_samples = 0;  // 0: unknown
  bool predicts = false;           // beside training or evaluating
  bool keeps_windows = false;      // the batches of a window are copied before it begins (api/windows.h)
};

// Settings of the levers that are used as they are, instead of a search.
struct ForcedSettings {
  std::optional<int64_t> micro;  // absent: the whole batch
  int recompute = 0;             // level: search/recompute_levels.h
  double kept = 1;               // share of the live set that stays on the device; the rest waits in the host's memory
  int prefetch = 0;              // batches that are read ahead
};

struct RunOptions {
  Mode mode = Mode::kTrain;
  std::string model;  // a file or a built-in name
  ModelOptions overrides;
  DataOptions data;
  int64_t batch_size = 32;
  bool automatic_batch = false;  // --batch-size auto: batch_size is not read
  bool batch_given = false;      // by the user: a saved plan has no say in it
  int64_t accumulation_steps = 1;
  std::optional<int64_t> micro_batch;
  std::optional<Bytes> budget;       // absent: what is free, less a margin; 0: unlimited
  std::optional<Bytes> host_budget;  // beside a GPU: what values may wait in; absent: most of what is free
  std::string device = "auto";
  bool tf32 = true;  // float32 matrix work on a GPU may be rounded to tf32
  bool memory_growth = false;
  std::string precision;          // empty: as the model's layers have it
  bool policy_of_layers = false;  // what `precision` says comes from there
  bool per_micro_batch_norm = false;
  std::set<std::string> forbidden;
  int threads = 0;
  uint64_t seed = 0;        // of the shuffle, dropout and initial weights
  bool find_least = false;  // whether to say what the smallest plan needs, also where something fits

  // Bytes of the host's memory that a program held before it called us. They count against a budget of the host's
  // memory; what it held of a device's own memory is asked of the device.
  Bytes resident_before = 0;
  // Reading the model and planning are refused memory beyond the budget. It is a limit of the whole process: only for
  // a process that does nothing else.
  bool limit_process = false;
  bool enforce_overhead = true;  // P303 where the process holds more than the bound; not in another program's process
  bool weights_from_caller = false;  // a model without weights may evaluate and predict: a program sets them
  std::function<void(const std::string&)> note;  // is told what a user should know, as it comes up; may be empty

  // For tests and experiments: settings instead of a search, and something between the session and the device.
  std::optional<ForcedSettings> forced;
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap_backend;

  void tell(const std::string& text) const {
    if (note) note(text);
  }
};

}  // namespace plimsoll::engine
