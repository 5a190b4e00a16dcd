/// @file
/// A plan as data: the use of every byte, and the savings and costs of each lever.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/array.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// The effect of a lever on the numbers that training computes.
enum class Effect {
  kBitwise,   ///< The results are the same to the bit.
  kRounding,  ///< Additions happen in another order, as with another number of threads.
  kTraining,  ///< The training itself changes. Only chosen if the options allow it.
};

/// Bytes of one kind at the moment of the peak.
struct PlanCategory {
  std::string name;   ///< "weights", "gradients", "optimizer", "activations", "inputs", "workspace", ...
  int64_t bytes = 0;  ///< The categories add up to Plan::arena_bytes.
};

/// A graph that runs as a whole.
struct PlanPhase {
  std::string name;     ///< "train", "begin", "accumulate", "apply", "evaluate", "predict", with "_tail" for a rest.
  int64_t samples = 0;  ///< Samples per run of the phase.
  int64_t arena_bytes = 0;  ///< The peak of this phase.
  double seconds = 0;       ///< The predicted time.
};

/// One layer's share of the memory.
struct PlanLayer {
  std::string name;              ///< The layer's name in the model.
  std::string class_name;        ///< Keras's class.
  Dims output_shape;             ///< The shape of one sample.
  int64_t parameters = 0;        ///< Elements of its weights.
  int64_t weight_bytes = 0;      ///< Bytes of its weights.
  int64_t activation_bytes = 0;  ///< Bytes of the values that it computes.
  int64_t workspace_bytes = 0;   ///< Bytes of scratch memory for its kernels.
};

/// A lever that the plan uses.
struct PlanLever {
  std::string name;                  ///< "micro-batch", "recompute", "offload", ...
  int64_t count = 0;                 ///< The number of micro-batches, recomputed nodes or offloaded values.
  int64_t saves_bytes = 0;           ///< Bytes that it saves in the arena.
  double costs_seconds = 0;          ///< Seconds that it costs per optimizer step.
  Effect effect = Effect::kBitwise;  ///< Its effect on the results.
};

/// A plan: everything a run will hold, known before it starts.
struct Plan {
  std::string model;            ///< The model's name.
  std::string device;           ///< The device's name.
  std::string precision;        ///< "float32", "mixed_bfloat16", ...
  bool fits = false;            ///< Whether it fits the budget. If not, this is the smallest plan that was found.
  int64_t budget_bytes = 0;     ///< 0: no limit.
  int64_t peak_bytes = 0;       ///< The peak of the whole process: arena_bytes + overhead_bytes + data_bytes.
  int64_t arena_bytes = 0;      ///< The block that holds every tensor and the scratch memory of every kernel.
  int64_t overhead_bytes = 0;   ///< An upper bound on the memory of the program, libraries and driver.
  int64_t data_bytes = 0;       ///< Input batches, and the memory that the program held before.
  int64_t least_bytes = 0;      ///< The peak of the smallest plan that was found; 0: no such search.
  int64_t parameters = 0;       ///< Elements of all weights.
  int64_t effective_batch = 0;  ///< Samples per optimizer step.
  int64_t micro_batch = 0;      ///< Samples that are computed at once.
  double step_seconds = 0;      ///< Predicted, per optimizer step.
  std::vector<PlanCategory> categories;  ///< At the peak.
  std::vector<PlanPhase> phases;         ///< In the order of the program.
  std::vector<PlanLayer> layers;         ///< In the order of the model.
  std::vector<PlanLever> levers;         ///< The levers that the plan uses.
  std::vector<std::string> remedies;  ///< If the plan does not fit: changes that would make it fit, with their costs.
  std::string text;                   ///< The table that `plimsoll plan` prints.
  std::string json;                   ///< The object that `plimsoll plan --json` prints, of the schema plimsoll.plan/1.
};

}  // namespace plimsoll
#pragma GCC visibility pop
