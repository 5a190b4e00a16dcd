// A model as a program of phases: graphs that share persistent values and run in turn.
//
//   whole windows      train
//   micro-batches      begin, accumulate x k, accumulate_tail, apply
//   and                evaluate, predict, each with a tail
//
// Persistent values beyond the model's own: "tally:NAME" `[]` T (what a window has summed so far), "accumulated:WEIGHT"
// (gradients of the window so far; only where a window is cut), and the step scalars that model.h and optimizer.h name.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace plimsoll {

struct Phase {
  std::string name;     // "train", "accumulate", "accumulate_tail", ...: data, not a type
  int64_t samples = 0;  // one run of it reads this many; 0: none
  Graph graph;
};

struct GraphOptions {
  Precision precision;
  DataTypes data;
};

Result<Phase> train_phase(const Model& model, int64_t samples, const GraphOptions& options,
                          const std::string& name = "train");
Result<Phase> begin_phase(const Model& model, const GraphOptions& options);
Result<Phase> accumulate_phase(const Model& model, int64_t samples, const GraphOptions& options,
                               const std::string& name = "accumulate");
Result<Phase> apply_phase(const Model& model, const GraphOptions& options);
Result<Phase> evaluate_phase(const Model& model, int64_t samples, const GraphOptions& options,
                             const std::string& name = "evaluate");
Result<Phase> predict_phase(const Model& model, int64_t samples, const GraphOptions& options,
                            const std::string& name = "predict");

// What the model sums, in the order Keras reports: the loss first. Graph ids in it belong to no graph.
std::vector<Tally> tallies_of(const Model& model, Mode mode, const GraphOptions& options);

std::string tally_value(const std::string& tally);         // "tally:loss"
std::string accumulated_value(const std::string& weight);  // "accumulated:dense/kernel"

}  // namespace plimsoll
