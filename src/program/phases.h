// A model as a program of phases: graphs that share persistent values and run in turn.
//
//   whole windows      train
//   micro-batches      begin, accumulate x k, accumulate_tail, apply
//   and                evaluate, predict, each with a tail
//
// model/values.h names the persistent values beyond the model's own: tallies, accumulated gradients, step scalars.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "program/phase_name.h"

namespace plimsoll::engine {

struct Phase {
  PhaseName name;
  int64_t samples = 0;  // one run of it reads this many; 0: none
  Graph graph;
};

struct GraphOptions {
  Precision precision;
  DataTypes data;
};

// `tail`: for a last batch that is smaller than the others.
Result<Phase> train_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> begin_phase(const Model& model, const GraphOptions& options);
Result<Phase> accumulate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> apply_phase(const Model& model, const GraphOptions& options);
Result<Phase> evaluate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> predict_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);

// What the model sums, in the order Keras reports: the loss first. Graph ids in it belong to no graph.
std::vector<Tally> tallies_of(const Model& model, Mode mode, const GraphOptions& options);

}  // namespace plimsoll::engine
