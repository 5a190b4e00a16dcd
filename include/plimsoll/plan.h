/// @file
/// A plan as data: where every byte goes, and what each lever saves and costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/array.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// What a lever does to the numbers that training computes.
enum class Effect {
  kBitwise,   ///< Nothing changes, not one bit.
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
  int64_t samples = 0;  ///< Samples that one run of it reads.
  int64_t arena_bytes = 0;  ///< Its own peak.
  double seconds = 0;       ///< Predicted.
};

/// A layer's share.
struct PlanLayer {
  std::string name;              ///< As in the model.
  std::string class_name;        ///< Keras's class.
  Dims output_shape;             ///< Of one sample.
  int64_t parameters = 0;        ///< Elements of its weights.
  int64_t weight_bytes = 0;      ///< Of its weights.
  int64_t activation_bytes = 0;  ///< Of the values it computes.
  int64_t workspace_bytes = 0;   ///< Of scratch memory that its kernels are granted.
};

/// A lever that the plan uses.
struct PlanLever {
  std::string name;                  ///< "micro-batch", "recompute", "offload", ...
  int64_t count = 0;                 ///< Micro-batches, recomputed nodes, offloaded values.
  int64_t saves_bytes = 0;           ///< Of the arena.
  double costs_seconds = 0;          ///< Per optimizer step.
  Effect effect = Effect::kBitwise;  ///< What it does to the numbers.
};

/// A plan: everything a run will hold, known before it starts.
struct Plan {
  std::string model;            ///< The model's name.
  std::string device;           ///< The device's name.
  std::string precision;        ///< "float32", "mixed_bfloat16", ...
  bool fits = false;            ///< Whether it fits the budget. If not, this is the smallest plan that was found.
  int64_t budget_bytes = 0;     ///< 0: no limit.
  int64_t peak_bytes = 0;       ///< Of the whole process: arena_bytes + overhead_bytes + data_bytes.
  int64_t arena_bytes = 0;      ///< Of the block that holds every tensor and every kernel's scratch memory.
  int64_t overhead_bytes = 0;   ///< A bound on what program, libraries and driver hold.
  int64_t data_bytes = 0;       ///< Of batches on their way in, and what the program held before.
  int64_t least_bytes = 0;      ///< The peak of the smallest plan that was found; 0: not searched for.
  int64_t parameters = 0;       ///< Elements of all weights.
  int64_t effective_batch = 0;  ///< Samples per optimizer step.
  int64_t micro_batch = 0;      ///< Samples that are computed at once.
  double step_seconds = 0;      ///< Predicted, per optimizer step.
  std::vector<PlanCategory> categories;  ///< At the peak.
  std::vector<PlanPhase> phases;         ///< In the order of the program.
  std::vector<PlanLayer> layers;         ///< In the order of the model.
  std::vector<PlanLever> levers;         ///< Those it uses.
  std::vector<std::string> remedies;     ///< If it does not fit: what would make it fit, with the price of each.
  std::string text;                      ///< The table that `plimsoll plan` prints.
  std::string json;  ///< The object that `plimsoll plan --json` prints, of the schema plimsoll.plan/1.
};

}  // namespace plimsoll
#pragma GCC visibility pop
