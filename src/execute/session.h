// Runs steps of training, evaluation and prediction, with plans that are bound to one arena.
//
// Training is begin(window), accumulate(batch) once per micro-batch, apply(). The caller decides what happens in
// between. The session does not allocate between create() and a change of plan. If the arena is not host-visible,
// batches are copied through a feed, sums come back through a readback, and steps are enqueued.
//
// Between two windows a session can switch to another plan of the same program: add_plan() and use() for plans that
// take turns (other batch sizes, other input shapes), change_plan() for a plan that replaces all others (another
// budget).
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
  int64_t iteration = 0;  // number of updates before this one
  double learning_rate = 0;
  uint64_t seed = 0;
  // For schedules, which do not count updates skipped because of an overflow (execute/window.h): the number of skipped
  // updates that the host knows of, and the learning rate to use if the previous update was skipped as well.
  int64_t known_skips = 0;
  double rate_if_skipped = 0;
};

// Writes one batch into the given buffers.
using Fill = std::function<Status(const BatchBuffers&)>;

// The sums of a window or of an evaluated batch.
struct Sums {
  std::vector<double> tallies;  // in the order of Session::tallies(), with all numbers of each
  std::vector<double> weights;  // sums of the sample weights, one per output
};

class Session {
 public:
  // Binds every kernel and does a dry run before any weight is loaded: one node of each kind, or every phase on a
  // device that records phases. Fails with kOverheadAboveBound if the process then holds more outside its arena than
  // the plan's overhead bound. `held_before` is the device memory that the program held before the session
  // (Backend::held_before_bytes, or the process's own bytes on the host). It does not count as overhead; the plan
  // counts it as data (DataDemand). The backend and the model must outlive the session.
  static Result<std::unique_ptr<Session>> create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before = 0,
                                                 bool enforces_overhead = true);
  ~Session();

  // Plans. Call these functions only between windows, after everything was collected. `model` is the session's model,
  // or the same model with other input shapes; it must outlive the session. A plan must have been made for this
  // session's arena (SearchRequest::arena), or have the same places for persistent values.
  //
  // Adds a plan and returns its number; the first plan has number 0. The arena grows if necessary. Afterwards the
  // process holds at most peak_with() of that plan. On failure the session keeps the plans it had.
  Result<size_t> add_plan(const Model& model, Plan plan);
  Status use(size_t plan);
  Bytes peak_with(const Plan& plan) const;
  // The values whose places plans for this session must keep: SearchRequest::arena.
  const std::vector<PersistentSlot>& kept() const { return arena_->kept(); }
  // Replaces all plans by one. Persistent values keep their contents, and the arena gets the new plan's size. On
  // failure the session keeps the plans it had.
  Status change_plan(const Model& model, Plan plan);

  // Adds a phase for a batch size that the plan in use does not have, without growing the arena (plan_tail() in
  // search/search.h).
  Status add_phase(PhasePlan phase) { return bound_->add_phase(std::move(phase)); }
  bool can_run(PhaseKind kind, int64_t count) const { return bound_->find(kind, count) != nullptr; }
  BoundCounts counts() const { return bound_->counts(); }  // of the plan in use, added phases included

  const Plan& plan() const { return bound_->plan(); }  // the plan in use
  const Model& model() const { return bound_->model(); }
  const GraphOptions& options() const { return options_; }
  const Device& device() const { return backend_.device(); }

  const std::vector<PersistentSlot>& persistent() const { return arena_->persistent(); }
  const PersistentSlot* slot(const std::string& name) const { return arena_->slot(name); }
  bool has_persistent(const std::string& name) const { return slot(name) != nullptr; }
  Result<HostView> look() const { return arena_->look(); }
  // Sets a persistent value: `write` fills a buffer, which becomes the new value.
  Status store(const std::string& name, const std::function<Status(const TensorView&)>& write);

  // `done` samples of the window were already accumulated by an interrupted run; their sums are in the arena.
  Status begin(const Window& window, int64_t done = 0);
  // `count` must be the plan's micro-batch size or the size of one of its tails.
  Status accumulate(int64_t count, const Fill& fill);
  Status apply();

  Status evaluate(int64_t count, const Fill& fill);
  Status predict(int64_t count, const Fill& fill);
  Result<TensorView> prediction(int64_t count, size_t output);  // result of the last predict(count, ...)

  // A device with a queue continues while the host collects earlier sums. At most two windows or evaluated batches may
  // wait to be collected. On the host, kernels are done when apply() returns, and at most one may wait.
  bool runs_ahead() const { return readback_ != nullptr; }
  Result<const Sums*> collect();  // sums of the oldest window or evaluated batch that was not collected
  double tally(
      const std::string& name);  // collects everything, then returns the newest value; NaN if the device failed
  const std::vector<Tally>& tallies() const { return bound_->tallies(); }
  // Number of updates skipped because of an overflow, in the windows collected so far; 0 without a loss scale.
  Result<int64_t> skipped_updates();
  // Sums of the sample weights since begin(), one per output. A checkpoint inside a window stores them.
  const std::vector<double>& weight_sums() const { return weight_sums_; }
  void restore_weight_sums(std::vector<double> sums) { weight_sums_ = std::move(sums); }

  // End of the highest value or workspace of all nodes that have run since the session was created or its plan changed.
  // It is measured, not copied from the plan.
  Bytes arena_peak_bytes() const { return arena_peak_; }
  Bytes arena_peak_of(size_t plan) const { return plans_[plan]->arena_peak_bytes(); }  // the same of one plan's nodes
  Bytes overhead_measured_bytes() const { return overhead_measured_; }                 // measured in the dry run
  Bytes overhead_now() const;  // bytes that the process holds outside the arena
  Bytes arena_held_bytes() const { return arena_->memory().held_bytes(); }
  Bytes peak_held_bytes() const { return backend_.peak_held_bytes(); }
  std::string counted_by() const { return backend_.counted_by(); }

 private:
  friend class Probe;

  Session(const Backend& backend, const GraphOptions& options, Bytes held_before, bool enforces_overhead);
  Status check_idle() const;
  Status bind(const Model& model, Plan plan);  // binds the plan and uses it
  Status bind_again();                         // binds every plan to new addresses
  // The plans that a failed change goes back to.
  struct PlansBefore {
    std::vector<std::pair<const Model*, Plan>> plans;
    size_t in_use = 0;  // number of the plan in use
    std::vector<PersistentSlot> kept;
  };
  PlansBefore plans_before() const;
  Status restore(PlansBefore before);
  Status bind_all(std::vector<std::pair<const Model*, Plan>> plans);  // replaces all plans
  Status check_overhead();
  Status record(BoundPlan& plan);  // records its phases; keeps the contents of persistent values
  void take(BoundPlan& plan);      // makes it the plan in use
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
  void read_tallies(const std::byte* persistent,
                    Sums& sums) const;  // `persistent`: the bottom of the arena, or a copy of it

  const Backend& backend_;
  GraphOptions options_;
  Bytes held_before_;
  bool enforces_overhead_;  // false inside the process of another program, for memory of the host
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<BoundPlan>> plans_;
  BoundPlan* bound_ = nullptr;          // the plan in use
  std::unique_ptr<Feed> feed_;          // null if the arena is host-visible
  std::unique_ptr<Readback> readback_;  // reads the persistent values from tally_begin_ on
  std::unique_ptr<Readback> skips_;     // reads the number of skipped updates, if a schedule needs it
  Bytes tally_begin_ = 0;
  std::array<const PersistentSlot*, kStepScalars> scalars_ = {};  // null: no graph reads it
  std::vector<const PersistentSlot*> loss_factors_;               // one per output; null without a loss
  std::vector<const PersistentSlot*> tally_slots_;                // one per tally
  std::vector<Poke> pokes_;
  std::vector<double> weight_sums_;
  Sums sums_[2];  // of the windows that wait to be collected; only sums_[0] on the host
  int64_t requested_ = 0, collected_ = 0;
  std::optional<int64_t> skipped_;                  // as of the last collected window; only if skips_ is set
  std::vector<std::vector<float>> staged_weights_;  // used if the graph's sample weights are not f32
  std::vector<std::byte> staged_prediction_;
  int64_t first_sample_ = 0;
  Bytes arena_peak_ = 0;
  Bytes overhead_measured_ = 0;
  std::function<void(const BoundPhase&)> run_instead_;  // set by a Probe that watches
};

}  // namespace plimsoll::engine
