/// @file
/// How a model is planned and run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plimsoll/array.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// The options that a plan is made with. They mean what the program's flags of the same names mean.
struct Options {
  /// Samples per batch. With gradient_accumulation_steps of 1 this is the effective batch: the samples per optimizer
  /// step.
  int64_t batch_size = 32;
  /// Batches whose gradients are averaged before each optimizer step, as in Keras.
  int64_t gradient_accumulation_steps = 1;
  /// Samples computed at once. It changes memory and speed, and the result only by rounding. 0: the planner chooses.
  int64_t micro_batch = 0;

  /// The bytes that the whole process may hold, such as "256MiB", with what the program held before the model was made.
  /// On a GPU it bounds the GPU's memory instead. "": what is free, less a margin.
  std::string budget = {};
  /// On a GPU: the bytes of host memory that offloaded values may take. "": most of what is free; "0": no offload.
  std::string host_budget = {};
  /// "auto", "cpu", "gpu", "gpu:1", or the profile of a GPU elsewhere ("rtx-4090-24g"), which can only be planned for.
  std::string device = "auto";
  /// "float32", "mixed_bfloat16" or "mixed_float16". "": as the model's layers say.
  std::string precision = {};
  /// Patterns of layer names that stay in float32 under a mixed precision.
  std::vector<std::string> float32_layers = {};
  /// Levers that the planner may not use: "micro-batch", "recompute", "offload".
  std::vector<std::string> forbid = {};
  /// If it is not empty, the planner uses these levers alone.
  std::vector<std::string> allow = {};
  /// BatchNormalization if the batch is split: "exact" refuses to split it, "per-micro-batch" takes the statistics of
  /// each micro-batch, which changes the training.
  std::string batchnorm = "exact";
  /// On a GPU: take memory as it is needed, instead of the whole arena at the start.
  bool memory_growth = false;
  /// On a GPU: matrix products in float32 may be rounded to tf32.
  bool tf32 = true;

  /// Lengths of one sample for an input that the model declares with None.
  Dims input_shape = {};
  /// Batches come with sample weights (Batch::sample_weight).
  bool sample_weights = false;
  /// False: the model only evaluates and predicts, and needs no memory for gradients or optimizer state.
  bool trains = true;
  /// Samples per batch of `evaluate` and `predict`. 0: batch_size.
  int64_t inference_batch_size = 0;

  /// Threads on the CPU. 0: as many as the machine has.
  int threads = 0;
  /// The seed of initial weights, shuffling and dropout.
  uint64_t seed = 0;
  /// Is told what a user should know, such as a metric in the file that is not computed. May be empty.
  std::function<void(const std::string&)> on_note = {};
};

}  // namespace plimsoll
#pragma GCC visibility pop
