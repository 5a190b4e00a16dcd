// A plan bound to an arena: its kernels, with addresses, phase by phase.
#pragma once

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
  std::unique_ptr<Kernel> recorded;  // all of them as one, where the device can
  BatchBuffers slots;                // where a batch is written
  std::vector<Feed::Slot> feed;      // the same with bytes: inputs, targets, weights
  std::vector<TensorView> weights;   // the graph's sample weights
  std::vector<TensorView> predictions;
  Bytes end = 0;  // of the highest thing bound
};

class BoundPlan {
 public:
  // The arena has room for the plan and its persistent values. Model, backend and arena outlive what is returned.
  static Result<std::unique_ptr<BoundPlan>> bind(const Model& model, Plan plan, const Backend& backend, Arena& arena,
                                                 const GraphOptions& options);

  const Plan& plan() const { return plan_; }
  const Model& model() const { return model_; }
  const std::vector<Tally>& tallies() const { return tallies_; }
  const std::vector<std::unique_ptr<BoundPhase>>& phases() const { return phases_; }
  int primitives() const;
  Bytes batch_bytes() const;     // the most that one batch takes, each array aligned
  size_t most_arrays() const;    // of one batch
  int64_t most_samples() const;  // of one batch

  BoundPhase* find(PhaseKind kind, int64_t samples) const;
  // The same, with room to run in.
  Result<BoundPhase*> ready(PhaseKind kind, int64_t samples) const;

  // Adds a phase for a batch size that the plan did not foresee, inside the arena as it is.
  Status add_phase(PhasePlan phase);

  // Of each kind of node the quickest is run alone. What is in the arena is lost.
  void run_each_kind();
  // Runs and records every phase. What is in the arena is lost.
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
};

// Runs the kernels of a phase in turn, or what was recorded of them.
void run_phase(const BoundPhase& phase);

}  // namespace plimsoll::engine
