// A plan at work: its arena, its kernels bound to addresses, and the steps that run them.
//
// Training is begin(window), accumulate(batch) as often as the window has micro-batches, apply(). Whoever drives it
// decides what comes between; nothing here allocates after create().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"
#include "device/kernel.h"
#include "execute/arena.h"
#include "plan/plan.h"

namespace plimsoll {

struct Window {
  int64_t samples = 0;    // of the effective batch, or fewer in an epoch's last window
  int64_t iteration = 0;  // updates made before this one
  double learning_rate = 0;
  uint64_t seed = 0;
};

// Writes one batch into the memory it is given.
using Fill = std::function<Status(const BatchBuffers&)>;

class Session {
 public:
  // Binds every kernel and runs one node of each kind, before any weight is loaded: after this dry run the process must
  // hold no more beside its arena than the plan's overhead bound allows (kOverheadAboveBound). `held_before` is what a
  // host program held before it called us; the plan counts it among its data.
  static Result<std::unique_ptr<Session>> create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before = 0);
  ~Session();

  // Adds a phase for a batch size the plan did not foresee, inside the arena as it is (search/search.h: plan_tail).
  Status add_phase(PhasePlan phase, const Backend& backend);
  bool can_accumulate(int64_t count) const { return find(micro_batched_ ? "accumulate" : "train", count) != nullptr; }

  const Plan& plan() const { return plan_; }
  const Model& model() const { return model_; }
  const GraphOptions& options() const { return options_; }

  bool has_persistent(const std::string& name) const { return plan_.slot(name) != nullptr; }
  TensorView persistent(const std::string& name) const;

  // `done` samples of the window were accumulated before, by a run that was interrupted: their sums are in the arena.
  void begin(const Window& window, int64_t done = 0);
  // `count` samples: the plan's micro-batch, or one of its tails.
  Status accumulate(int64_t count, const Fill& fill);
  void apply();

  Status evaluate(int64_t count, const Fill& fill);
  Status predict(int64_t count, const Fill& fill);
  TensorView prediction(int64_t count, size_t output) const;  // of the last predict(count, ...)

  // What a window or an evaluated batch has summed.
  double tally(const std::string& name) const;
  const std::vector<Tally>& tallies() const { return tallies_; }
  // Sum of the sample weights of one output since begin() or in the last evaluate().
  double weight_sum(size_t output) const { return weight_sums_[output]; }
  const std::vector<double>& weight_sums() const { return weight_sums_; }
  void restore_weight_sums(std::vector<double> sums) { weight_sums_ = std::move(sums); }  // of a window under way

  // End of the highest value or workspace bound to a node that has run: measured, not copied from the plan.
  Bytes arena_peak_bytes() const { return arena_peak_; }
  Bytes overhead_measured_bytes() const { return overhead_measured_; }  // by the dry run
  Bytes overhead_now() const;                                           // what the process holds beside the arena

  // For tests: writes a pattern everywhere above the persistent values, the guard behind the arena included; first byte
  // above `from` that no longer holds it, or -1; and a look at the arena before and after each node.
  static constexpr std::byte kPattern{0xA5};
  void fill_pattern();
  Bytes first_changed_byte(Bytes from) const;
  using Watch = std::function<void(const PhasePlan& phase, size_t node, bool done, std::byte* arena)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

 private:
  struct BoundPhase;

  Session(const Model& model, Plan plan, Arena arena, const GraphOptions& options);
  Status bind(const Backend& backend);
  Status dry_run(Bytes held_before);
  Status bind_phase(const PhasePlan& phase, const Backend& backend);
  BoundPhase* find(const std::string& name, int64_t samples) const;
  Status run_batch(BoundPhase& phase, const Fill& fill);
  void run(BoundPhase& phase);
  void run_alone(BoundPhase& phase, size_t node);
  void set_scalar(const std::string& name, double value);
  void set_integers(const std::string& name, std::initializer_list<int64_t> values);
  void set_scales(int64_t samples);

  const Model& model_;
  Plan plan_;
  GraphOptions options_;
  Arena arena_;
  std::vector<std::unique_ptr<PhasePlan>> added_;
  std::vector<std::unique_ptr<BoundPhase>> phases_;
  std::vector<Tally> tallies_;
  std::vector<double> weight_sums_;
  std::vector<std::vector<float>> staged_weights_;  // where the graph's weights are not f32
  int64_t first_sample_ = 0;
  bool micro_batched_ = false;
  Bytes arena_peak_ = 0;
  Bytes overhead_measured_ = 0;
  Watch watch_;
};

}  // namespace plimsoll
