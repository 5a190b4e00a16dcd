/// @file
/// The options for planning and running a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plimsoll/array.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// The options of a plan. They have the same meaning as the program's flags of the same names.
struct Options {
  /// Samples per batch. With gradient_accumulation_steps of 1 this is the effective batch: the samples per optimizer
  /// step.
  int64_t batch_size = 32;
  /// Batches whose gradients are averaged before each optimizer step, as in Keras.
  int64_t gradient_accumulation_steps = 1;
  /// Samples computed at once. It changes memory and speed, and the result only by rounding. 0: the planner chooses.
  int64_t micro_batch = 0;

  /// The memory that the whole process may hold, such as "256MiB". It includes the memory that the program held before
  /// the model was made. On a GPU, it limits the GPU's memory instead. "": the free memory less a margin.
  std::string budget = {};
  /// On a GPU: the bytes of host memory that offloaded values may take. "": most of the free memory; "0": no offload.
  std::string host_budget = {};
  /// "auto", "cpu", "gpu", "gpu:1", or the name of a GPU profile ("rtx-4090-24g"), which can only be planned for.
  std::string device = "auto";
  /// "float32", "mixed_bfloat16" or "mixed_float16". "": the precision of the model's layers.
  std::string precision = {};
  /// Patterns of layer names that stay in float32 under a mixed precision.
  std::vector<std::string> float32_layers = {};
  /// Levers that the planner may not use: "micro-batch", "recompute", "offload".
  std::vector<std::string> forbid = {};
  /// If the list is not empty, the planner uses only these levers.
  std::vector<std::string> allow = {};
  /// How BatchNormalization limits micro-batches. "exact" refuses to split the batch. "per-micro-batch" uses the
  /// statistics of each micro-batch, which changes the training.
  std::string batchnorm = "exact";
  /// On a GPU: allocate memory as it is needed, instead of the whole arena at the start.
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
  /// Samples per epoch, if known. The plan then includes the last batch of an epoch, which may be smaller. 0: unknown;
  /// a smaller batch is planned when it arrives, inside the same budget.
  int64_t samples = 0;
  /// Samples that an evaluation reads, if known; as `samples`.
  int64_t validation_samples = 0;
  /// Bytes of host memory that the program will take itself while it uses the model, such as batches that a data source
  /// prepares. They count against the budget like the memory that the program held before.
  int64_t reserved_bytes = 0;
  /// `step` and `apply` fail with P403 if the loss is not finite. False: they report that loss, and training goes on.
  bool refuse_divergence = true;

  /// The file of measured kernel times that predictions are made from. "auto": the one that `plimsoll doctor
  /// --calibrate` wrote for this device, if there is one; "none": no file.
  std::string calibration = "auto";
  /// Threads on the CPU. 0: as many as the machine has.
  int threads = 0;
  /// The seed of initial weights, shuffling and dropout.
  uint64_t seed = 0;
  /// Receives notes for the user, such as a metric in the file that is not computed. May be empty.
  std::function<void(const std::string&)> on_note = {};
};

}  // namespace plimsoll
#pragma GCC visibility pop
