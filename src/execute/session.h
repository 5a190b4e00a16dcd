// Steps: training, evaluation and prediction with plans that are bound in one arena.
//
// Training is begin(window), accumulate(batch) as often as the window has micro-batches, apply(). Whoever drives it
// decides what comes between; nothing here allocates between create() and a change of plan. The arena may lie where the
// host cannot look: then batches go in through a feed, sums come back through a readback, and steps are enqueued.
//
// Between two windows a session can go on with another plan of the same program: add_plan() and use() for plans that
// take turns (other batch sizes, other input shapes), change_plan() for one that replaces all (another budget).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "execute/bound_plan.h"
#include "model/values.h"

namespace plimsoll::engine {

struct Window {
  int64_t samples = 0;    // of the effective batch, or fewer in an epoch's last window
  int64_t iteration = 0;  // updates made before this one
  double learning_rate = 0;
  uint64_t seed = 0;
  // Where a schedule counts only the updates that no overflow prevented (execute/window.h): how many were prevented as
  // far as the host has seen, and the rate if the update before this one was one more.
  int64_t known_skips = 0;
  double rate_if_skipped = 0;
};

// Writes one batch into the memory it is given.
using Fill = std::function<Status(const BatchBuffers&)>;

// What a window or an evaluated batch has summed.
struct Sums {
  std::vector<double> tallies;  // in the order of Session::tallies()
  std::vector<double> weights;  // of the samples, one per output
};

class Session {
 public:
  // Binds every kernel and runs, before any weight is loaded, one node of each kind, or, on a device whose phases are
  // recorded, every phase: after this dry run the process must hold no more beside its arena than the plan's overhead
  // bound allows (kOverheadAboveBound). `held_before` is what the program held of the device's memory before this
  // (Backend::held_before_bytes, or the process's own bytes on the host): no overhead of ours. The plan counts it among
  // its data (DataDemand). The backend and the model outlive the session.
  static Result<std::unique_ptr<Session>> create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before = 0);
  ~Session();

  // Plans. These calls come between windows, once everything was collected. `model` is the session's, or the same
  // model with other input shapes; it outlives the session. A plan must have been made for this session's arena
  // (SearchRequest::arena), or place its values alike.
  //
  // Adds a plan beside those that are there, and returns its number; the first one's is 0. The arena grows where it
  // must. What the process holds then is at most peak_with() of that plan. On failure the session goes on with the
  // plans it had.
  Result<size_t> add_plan(const Model& model, Plan plan);
  Status use(size_t plan);
  Bytes peak_with(const Plan& plan) const;
  // What plans for this session must leave in its place: SearchRequest::arena.
  const std::vector<PersistentSlot>& kept() const { return arena_->kept(); }
  // Replaces all plans by one. Persistent values keep what they hold; the arena takes the new plan's size. On failure
  // the session goes on with the plans it had.
  Status change_plan(const Model& model, Plan plan);

  // Adds a phase for a batch size that the plan in use did not foresee, inside the arena as it is (search/search.h:
  // plan_tail).
  Status add_phase(PhasePlan phase) { return bound_->add_phase(std::move(phase)); }
  bool can_accumulate(int64_t count) const { return bound_->find(plan().gradient_phase(), count) != nullptr; }

  const Plan& plan() const { return bound_->plan(); }  // the one in use
  const Model& model() const { return bound_->model(); }
  const GraphOptions& options() const { return options_; }
  const Device& device() const { return backend_.device(); }

  const std::vector<PersistentSlot>& persistent() const { return arena_->persistent(); }
  const PersistentSlot* slot(const std::string& name) const { return arena_->slot(name); }
  bool has_persistent(const std::string& name) const { return slot(name) != nullptr; }
  Result<HostView> look() const { return arena_->look(); }
  // `write` fills the value it is shown, which then is the persistent value's.
  Status store(const std::string& name, const std::function<Status(const TensorView&)>& write);

  // `done` samples of the window were accumulated before, by a run that was interrupted: their sums are in the arena.
  Status begin(const Window& window, int64_t done = 0);
  // `count` samples: the plan's micro-batch, or one of its tails.
  Status accumulate(int64_t count, const Fill& fill);
  Status apply();

  Status evaluate(int64_t count, const Fill& fill);
  Status predict(int64_t count, const Fill& fill);
  Result<TensorView> prediction(int64_t count, size_t output);  // of the last predict(count, ...)

  // A device with a queue goes on while the host looks at what came before: at most two windows or evaluated batches
  // may wait to be collected. The host's own kernels are done when apply() returns, and one is collected at a time.
  bool runs_ahead() const { return readback_ != nullptr; }
  Result<const Sums*> collect();          // of the oldest window or evaluated batch that was not collected
  double tally(const std::string& name);  // of the newest, once collected with all before it; NaN if the device failed
  const std::vector<Tally>& tallies() const { return bound_->tallies(); }
  // Updates that an overflow prevented, as far as windows were collected; 0 without a loss scale.
  Result<int64_t> skipped_updates();
  // Sums of the sample weights since begin(), one per output; a checkpoint inside a window carries them.
  const std::vector<double>& weight_sums() const { return weight_sums_; }
  void restore_weight_sums(std::vector<double> sums) { weight_sums_ = std::move(sums); }

  // End of the highest value or workspace bound to a node that has run since the session was made or its plan changed:
  // measured, not copied from the plan.
  Bytes arena_peak_bytes() const { return arena_peak_; }
  Bytes overhead_measured_bytes() const { return overhead_measured_; }  // by the dry run
  Bytes overhead_now() const;                                           // what the process holds beside the arena
  Bytes arena_held_bytes() const { return arena_->memory().held_bytes(); }
  Bytes peak_held_bytes() const { return backend_.peak_held_bytes(); }
  std::string counted_by() const { return backend_.counted_by(); }

 private:
  friend class Probe;

  Session(const Backend& backend, const GraphOptions& options, Bytes held_before);
  Status check_idle() const;
  Status bind(const Model& model, Plan plan);  // and uses it
  Status bind_again();                         // every plan, at new addresses
  // What a change of plans that fails goes back to.
  struct PlansBefore {
    std::vector<std::pair<const Model*, Plan>> plans;
    size_t in_use = 0;  // number of the plan in use
    std::vector<PersistentSlot> kept;
  };
  PlansBefore plans_before() const;
  Status restore(PlansBefore before);
  Status bind_all(std::vector<std::pair<const Model*, Plan>> plans);  // in place of all that are there
  Status check_overhead();
  Status record(BoundPlan& plan);  // keeps what persistent values hold
  void take(BoundPlan& plan);      // as the one in use
  Status open_queues();
  Result<BoundPhase*> next_accumulate(int64_t count);
  Status run_batch(BoundPhase& phase, const Fill& fill);
  void run(const BoundPhase& phase);
  void flush_pokes();
  void set_real(const PersistentSlot* slot, double value);
  void set_scalar(StepScalar scalar, double value);
  void set_integers(StepScalar scalar, std::initializer_list<int64_t> values);
  void set_loss_factors(int64_t samples);
  void request_sums();
  void read_tallies(const std::byte* persistent, Sums& sums) const;  // `persistent`: the arena's bottom, or a copy

  const Backend& backend_;
  GraphOptions options_;
  Bytes held_before_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<BoundPlan>> plans_;
  BoundPlan* bound_ = nullptr;          // the plan in use
  std::unique_ptr<Feed> feed_;          // null where the host writes into the arena itself
  std::unique_ptr<Readback> readback_;  // of the persistent values from tally_begin_ on
  std::unique_ptr<Readback> skips_;     // of the updates prevented, where a schedule wants to know
  Bytes tally_begin_ = 0;
  std::array<const PersistentSlot*, kStepScalars> scalars_ = {};  // null: no graph reads it
  std::vector<const PersistentSlot*> loss_factors_;               // one per output; null without a loss
  std::vector<const PersistentSlot*> tally_slots_;                // one per tally
  std::vector<Poke> pokes_;
  std::vector<double> weight_sums_;
  Sums sums_[2];  // of the windows that wait; sums_[0] where nothing runs ahead
  int64_t requested_ = 0, collected_ = 0;
  std::optional<int64_t> skipped_;                  // as of what was collected; where skips_ is
  std::vector<std::vector<float>> staged_weights_;  // where the graph's weights are not f32
  std::vector<std::byte> staged_prediction_;
  int64_t first_sample_ = 0;
  Bytes arena_peak_ = 0;
  Bytes overhead_measured_ = 0;
  std::function<void(const BoundPhase&)> run_instead_;  // of a probe that watches
};

}  // namespace plimsoll::engine
