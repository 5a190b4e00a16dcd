// A model as a program of phases: graphs that share persistent values and run one after the other.
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
  int64_t samples = 0;  // samples that one run of the phase reads; 0: none
  Graph graph;
};

struct GraphOptions {
  Precision precision;
  DataTypes data;
};

// `tail`: the phase is for a last batch that is smaller than the others.
Result<Phase> train_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> begin_phase(const Model& model, const GraphOptions& options);
Result<Phase> accumulate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> apply_phase(const Model& model, const GraphOptions& options);
Result<Phase> evaluate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);
Result<Phase> predict_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail = false);

// Returns the sums that the model computes, in the order in which Keras reports them: the loss first. The value ids in
// them do not belong to any graph.
std::vector<Tally> tallies_of(const Model& model, Mode mode, const GraphOptions& options);

}  // namespace plimsoll::engine
