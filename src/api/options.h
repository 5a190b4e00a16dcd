// The options of a run. The program's flags, the Options of the C++ interface, the tests and the benchmarks are all
// converted to RunOptions. api/run.h makes a model, a plan and a session from them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "data/read_options.h"
#include "device/kernel.h"
#include "model/model.h"
#include "model/what_if.h"

namespace plimsoll::engine {

// The data of a run. If the data are not in a file, the calling program passes batches and describes them here.
struct DataOptions {
  std::string data, validation_data, class_weight;  // the values of the flags with these names; empty: not given
  double validation_split = 0;
  ReadOptions read;
  int64_t validation_batch = 0;  // also used for predictions of a training run; 0: the batch size
  bool shuffle = true;
  // --buckets: samples are grouped by length, and each batch is cut to its group's length. Empty: the lengths are
  // chosen by the data. `padding`: what fills the end of a sample.
  std::optional<std::vector<int64_t>> buckets;
  double padding = 0;
  bool reads_ahead = true;  // prefetch the next batch during computation: `plimsoll fit` does, the C++ Model does not

  // The following are used only if the data are not in files.
  bool sample_weights = false;
  int64_t samples = 0;  // 0: unknown
  bool validates = false;
  int64_t validation_samples = 0;  // 0: unknown
  bool predicts = false;           // in addition to training or evaluating
  bool keeps_windows = false;      // all batches of a window are copied before the window begins (api/windows.h)
};

// Fixed lever settings, which replace the search.
struct ForcedSettings {
  std::optional<int64_t> micro;  // absent: the whole batch
  int recompute = 0;  // percent of the live set that is recomputed instead of kept, or less if that cannot be reached
  double kept = 1;    // share of the live set that stays on the device; the rest is offloaded to host memory
  int prefetch = 0;   // number of batches to prefetch
  int64_t split = 0;  // pieces of the batch inside one phase (levers/split_batch.h)
};

inline constexpr const char* kOwnCalibration = "auto";

struct RunOptions {
  Mode mode = Mode::kTrain;
  std::string model;    // a file or a built-in name
  std::string weights;  // a file of weights that replaces the model's own; "": none
  ModelOptions overrides;
  WhatIf what_if;  // changes of the model that only a plan can price
  DataOptions data;
  int64_t batch_size = 32;
  bool automatic_batch = false;  // --batch-size auto: batch_size is ignored
  bool batch_given = false;      // the user set the batch size, so a saved plan does not change it
  int64_t accumulation_steps = 1;
  std::optional<int64_t> micro_batch;
  std::optional<Bytes> budget;       // absent: the free memory less a margin; 0: unlimited
  std::optional<Bytes> host_budget;  // with a GPU: host memory for offloaded values; absent: most of the free memory
  std::string device = "auto";
  bool tf32 = true;  // float32 matrix products on a GPU may be rounded to tf32
  bool memory_growth = false;
  std::string precision;          // empty: the precision of the model's layers
  bool policy_of_layers = false;  // `precision` was taken from the model's layers
  bool per_micro_batch_norm = false;
  std::set<std::string> forbidden;
  int threads = 0;
  // The file with the seconds of this device's kernels; kOwnCalibration: the one that `doctor --calibrate` wrote to the
  // cache; "": none, and the backend's own estimates are used.
  std::string calibration;
  uint64_t seed = 0;        // for shuffling, dropout and initial weights
  bool find_least = false;  // find the memory of the smallest plan, even if a plan fits

  // Bytes of host memory that the program held before it called Plimsoll. They count against a budget for host memory.
  // For device memory, the device reports the bytes that were already in use.
  Bytes resident_before = 0;
  // Allocations beyond the budget fail while the model is read and planned. The limit applies to the whole process, so
  // set it only if the process does nothing else.
  bool limit_process = false;
  // Fail with P303 if the process exceeds the overhead bound. False inside the process of another program.
  bool enforce_overhead = true;
  // The C++ Model's steps fail with P403 if the loss is not finite. False: they report it.
  bool refuse_divergence = true;
  bool weights_from_caller = false;  // a model without weights may evaluate and predict, because the caller sets them
  std::function<void(const std::string&)> note;  // receives notes for the user; may be empty

  // For tests and experiments: fixed settings instead of a search, and a wrapper around the backend.
  std::optional<ForcedSettings> forced;
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap_backend;

  void tell(const std::string& text) const {
    if (note) note(text);
  }
};

}  // namespace plimsoll::engine
