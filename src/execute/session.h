// A plan at work: its arena, its kernels bound to addresses, and the steps that run them.
//
// Training is begin(window), accumulate(batch) as often as the window has micro-batches, apply(). Whoever drives it
// decides what comes between; nothing here allocates after create(). The arena may lie where the host cannot look: then
// batches go in through a feed, sums come back through a readback, and steps are enqueued.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "device/kernel.h"
#include "plan/plan.h"

namespace plimsoll {

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
  std::vector<double> weights;  // of the samples, one an output
};

// Persistent values as the host sees them: in place where the arena is host-visible, else copied out.
class HostView {
 public:
  HostView(const Plan& plan, const std::byte* base) : plan_(&plan), base_(base) {}
  HostView(const Plan& plan, std::vector<std::byte> copy) : plan_(&plan), copy_(std::move(copy)), base_(copy_.data()) {}
  HostView(HostView&&) = default;

  TensorView operator[](const std::string& name) const;  // without data where the plan has no such value

 private:
  const Plan* plan_;
  std::vector<std::byte> copy_;
  const std::byte* base_;
};

class Session {
 public:
  // Binds every kernel and runs, before any weight is loaded, one node of each kind, or, on a device whose phases are
  // recorded, every phase: after this dry run the process must hold no more beside its arena than the plan's overhead
  // bound allows (kOverheadAboveBound). `held_before` is what the program held of the device's memory before this
  // (Backend::held_before_bytes, or the process's own bytes on the host): no overhead of ours. The plan counts it among
  // its data (DataDemand). The backend outlives the session.
  static Result<std::unique_ptr<Session>> create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before = 0);
  ~Session();

  // Adds a phase for a batch size the plan did not foresee, inside the arena as it is (search/search.h: plan_tail).
  Status add_phase(PhasePlan phase);
  bool can_accumulate(int64_t count) const { return find(micro_batched_ ? "accumulate" : "train", count) != nullptr; }

  const Plan& plan() const { return plan_; }
  const Model& model() const { return model_; }
  const GraphOptions& options() const { return options_; }

  bool has_persistent(const std::string& name) const { return plan_.slot(name) != nullptr; }
  Result<HostView> look() const;
  // `write` fills the value it is shown, which then is the persistent value's.
  Status store(const std::string& name, const std::function<Status(const TensorView&)>& write);

  // `done` samples of the window were accumulated before, by a run that was interrupted: their sums are in the arena.
  Status begin(const Window& window, int64_t done = 0);
  // `count` samples: the plan's micro-batch, or one of its tails.
  Status accumulate(int64_t count, const Fill& fill);
  // The same on the batch that came last, which a device with memory of its own still has: for benchmarks.
  Status accumulate_again(int64_t count);
  Status apply();

  Status evaluate(int64_t count, const Fill& fill);
  Status predict(int64_t count, const Fill& fill);
  Result<TensorView> prediction(int64_t count, size_t output);  // of the last predict(count, ...)

  // A device with a queue goes on while the host looks at what came before: at most two windows or evaluated batches
  // may wait to be collected. The host's own kernels are done when apply() returns, and one is collected at a time.
  bool runs_ahead() const { return readback_ != nullptr; }
  Result<const Sums*> collect();          // of the oldest window or evaluated batch that was not collected
  double tally(const std::string& name);  // of the newest, once collected with all before it; NaN if the device failed
  const std::vector<Tally>& tallies() const { return tallies_; }
  // Updates that an overflow prevented, as far as windows were collected; 0 without a loss scale.
  Result<int64_t> skipped_updates();
  // Sums of the sample weights since begin(), one an output; a checkpoint inside a window carries them.
  const std::vector<double>& weight_sums() const { return weight_sums_; }
  void restore_weight_sums(std::vector<double> sums) { weight_sums_ = std::move(sums); }

  // End of the highest value or workspace bound to a node that has run: measured, not copied from the plan.
  Bytes arena_peak_bytes() const { return arena_peak_; }
  Bytes overhead_measured_bytes() const { return overhead_measured_; }  // by the dry run
  Bytes overhead_now() const;                                           // what the process holds beside the arena
  Bytes arena_held_bytes() const { return memory_->held_bytes(); }
  Bytes peak_held_bytes() const { return backend_.peak_held_bytes(); }
  std::string counted_by() const { return backend_.counted_by(); }
  const Device& device() const { return backend_.device(); }

  // For benchmarks: seconds of each node of a phase, each run `repeats` times in a row. What the arena holds is lost.
  Result<std::vector<double>> measure_nodes(const std::string& phase, int64_t samples, int repeats);

  // For tests: writes a pattern everywhere above the persistent values, the guard behind the arena included; first byte
  // above `from` that no longer holds it, or -1; and a look at the arena before and after each node.
  static constexpr std::byte kPattern{0xA5};
  void fill_pattern();
  Bytes first_changed_byte(Bytes from) const;
  using Watch = std::function<void(const PhasePlan& phase, size_t node, bool done, std::byte* arena)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

 private:
  struct BoundPhase;

  using Memories = std::map<Space, std::unique_ptr<Memory>>;

  Session(const Model& model, Plan plan, Memories memories, const Backend& backend, const GraphOptions& options);
  Status bind();
  Status open_queues();
  Status dry_run(Bytes held_before);
  Status bind_phase(const PhasePlan& phase);
  void find_slots(BoundPhase& phase);
  BoundPhase* find(const std::string& name, int64_t samples) const;
  Result<BoundPhase*> ready(const std::string& name, int64_t samples);  // found, and with room to run in
  Result<BoundPhase*> next_accumulate(int64_t count);
  Status run_batch(BoundPhase& phase, const Fill& fill);
  void run(BoundPhase& phase);
  void flush_pokes();
  void run_alone(BoundPhase& phase, size_t node);
  void run_each_kind();
  Status record_phases();
  void set_scalar(const std::string& name, double value);
  void set_integers(const std::string& name, std::initializer_list<int64_t> values);
  void set_scales(int64_t samples);
  void request_sums();
  void read_tallies(const std::byte* persistent, Sums& sums) const;  // `persistent`: the arena's bottom, or a copy

  const Model& model_;
  const Backend& backend_;
  Plan plan_;
  GraphOptions options_;
  Memories memories_;
  Memory* memory_;  // of them, the arena
  std::vector<std::unique_ptr<PhasePlan>> added_;
  std::vector<std::unique_ptr<BoundPhase>> phases_;
  std::unique_ptr<Feed> feed_;          // null where the host writes into the arena itself
  std::unique_ptr<Readback> readback_;  // of the persistent values from tally_begin_ on
  std::unique_ptr<Readback> skips_;     // of the updates prevented, where a schedule wants to know
  Bytes tally_begin_ = 0;
  std::vector<Poke> pokes_;
  std::vector<Tally> tallies_;
  std::vector<double> weight_sums_;
  Sums sums_[2];  // of the windows that wait; sums_[0] where nothing runs ahead
  int64_t requested_ = 0, collected_ = 0;
  std::optional<int64_t> skipped_;                  // as of what was collected; where skips_ is
  std::vector<std::vector<float>> staged_weights_;  // where the graph's weights are not f32
  std::vector<std::byte> staged_prediction_;
  int64_t first_sample_ = 0;
  bool micro_batched_ = false;
  Bytes arena_peak_ = 0;
  Bytes overhead_measured_ = 0;
  Watch watch_;
};

}  // namespace plimsoll
