// A plan bound to an arena: the kernels of each phase, with addresses.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"
#include "device/kernel.h"
#include "execute/arena.h"

namespace plimsoll::engine {

struct BoundPhase {
  const PhasePlan* plan = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::unique_ptr<Kernel> recorded;  // all kernels as one, if the device supports it
  BatchBuffers slots;                // buffers into which a batch is written
  std::vector<Feed::Slot> feed;      // the same buffers with their sizes: inputs, targets, weights
  std::vector<TensorView> weights;   // sample weights in the graph
  std::vector<TensorView> predictions;
  Bytes end = 0;  // end of the highest value or workspace that is bound
};

class BoundPlan {
 public:
  // The arena must have room for the plan and its persistent values. Model, backend and arena must outlive the result.
  static Result<std::unique_ptr<BoundPlan>> bind(const Model& model, Plan plan, const Backend& backend, Arena& arena,
                                                 const GraphOptions& options);

  const Plan& plan() const { return plan_; }
  const Model& model() const { return model_; }
  const std::vector<Tally>& tallies() const { return tallies_; }
  const std::vector<std::unique_ptr<BoundPhase>>& phases() const { return phases_; }
  BoundCounts counts() const;
  Bytes batch_bytes() const;     // bytes of the largest batch, with each array aligned
  size_t most_arrays() const;    // most arrays of any batch
  int64_t most_samples() const;  // most samples of any batch

  BoundPhase* find(PhaseKind kind, int64_t samples) const;
  // The same, and commits the memory that the phase needs to run.
  Result<BoundPhase*> ready(PhaseKind kind, int64_t samples) const;

  // End of the highest value or workspace of the nodes that have run, measured.
  Bytes arena_peak_bytes() const { return arena_peak_; }
  void has_run(Bytes end) { arena_peak_ = std::max(arena_peak_, end); }

  // Adds a phase for a batch size that the plan does not have, without growing the arena.
  Status add_phase(PhasePlan phase);

  // Runs one node of each kind, the fastest one. Overwrites the arena.
  void run_each_kind();
  // Runs and records every phase. Overwrites the arena.
  Status record();

 private:
  BoundPlan(const Model& model, Plan plan, const Backend& backend, Arena& arena)
      : model_(model), plan_(std::move(plan)), backend_(backend), arena_(arena) {}
  Status bind_phases();
  Status bind_phase(const PhasePlan& phase);
  void find_slots(BoundPhase& phase) const;
  void run_alone(BoundPhase& phase, size_t node) const;

  const Model& model_;
  Plan plan_;
  const Backend& backend_;
  Arena& arena_;
  std::vector<Tally> tallies_;
  std::vector<std::unique_ptr<PhasePlan>> added_;
  std::vector<std::unique_ptr<BoundPhase>> phases_;
  Bytes arena_peak_ = 0;
};

// Runs the kernels of a phase in turn, or their recording.
void run_phase(const BoundPhase& phase);

}  // namespace plimsoll::engine
