// plimsoll shrink distill: a small model learns from the logits of a large one.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "api/options.h"
#include "execute/fit.h"

namespace plimsoll::engine {

struct DistillOptions {
  RunOptions run;  // the student, the data, the budget and how to train
  std::string teacher, output;
  std::string cache;  // the file of the teacher's logits; "": beside the output, removed at the end
  double temperature = 2, alpha = 0.1;
  int64_t epochs = 1;
  const std::atomic<bool>* stop = nullptr;
  FitObserver* observer = nullptr;
  std::function<void(int64_t done, int64_t samples)> teacher_progress;
};

struct DistillReport {
  FitResult fitted;
  std::string cache;
  bool cache_reused = false;
  Bytes cache_bytes = 0;
  int64_t samples = 0, classes = 0;
  Bytes teacher_planned = 0, student_planned = 0;  // bytes of the process, as planned for each
  Bytes peak_bytes = 0, budget_bytes = 0;
  std::vector<Metric> metrics;  // of the student on the validation data
};

// Writes options.output: the student's file with new weights, which Keras loads.
Result<DistillReport> distill(const DistillOptions& options);

}  // namespace plimsoll::engine
