// The compiler driver: compiles a request with given lever settings into a plan. Its stages are program, levers,
// lowering, ordering and packing.
#pragma once

#include <map>
#include <optional>

#include "plan/recompute.h"
#include "search/search.h"

namespace plimsoll::engine {

// Returns the plan with these settings, or none if a lever cannot reach its setting. The prefetch setting is ignored:
// prefetch is used if it fits the budget.
Result<std::optional<Plan>> compile(const SearchRequest& request, const LeverSettings& settings);

// A phase whose bytes and seconds are known.
struct LoweredPhase {
  PhaseName name;
  int64_t samples = 0;
  LoweredGraph graph;
  double repeats = 0;       // number of runs in one full window
  Bytes live = 0;           // largest live set; known after ordering
  bool is_ordered = false;  // must not be reordered
};

// A setting of the recompute lever, and what the training phases take with it, before packing.
struct RecomputePoint {
  int64_t percent = 0;
  double compute_seconds = 0;
  Bytes live = 0;  // the largest live set of transient values
};

// Compiles settings that differ only in levers of the kOrderedGraph stage. All earlier stages run only once.
class Compiler {
 public:
  // Lowers the training phases, which all these plans share.
  static Result<Compiler> create(const SearchRequest& request, const LeverSettings& settings);

  // A lower bound on the seconds of a step: every offloaded byte crosses the link at least once.
  double seconds_of_copies(int64_t offload_percent) const;

  // Returns the settings of recompute that are worth a plan, those with smaller live sets last. They do not depend on a
  // budget. The bytes and seconds of all but the last are what the path expects; packed plans may differ a little.
  std::vector<RecomputePoint> recompute_points();

  int64_t nodes() const;   // of all training phases
  double least_seconds();  // lower bound on the seconds of a step, whatever is recomputed
  Bytes least_live();      // lower bound on the largest live set, whatever is recomputed

  // Returns a lower bound on the kernels' seconds of a step that keeps no more bytes live than this plan of the
  // compiler, whatever is recomputed, in this order, with these kernels and this micro-batch.
  double least_seconds_for(const Plan& plan);

  // Returns a lower bound on the arena, or on the peak, of a plan with this live set.
  Bytes least_arena(Bytes live) const { return layout_.bytes + live; }
  Bytes least_peak(Bytes live) const { return least_arena(live) + request_->device->overhead_bound({}); }

  // What a plan takes at least. It is known before packing, which takes longest.
  struct Outline {
    double compute_seconds = 0;
    Bytes peak_bytes = 0;
  };
  // Applies the settings to the phases. Returns none if a lever cannot reach its setting. The `last` plan takes the
  // lowered phases with it instead of copying them.
  std::optional<Outline> outline(const LeverSettings& settings, bool last = false);
  // Returns lower bounds on the peaks of the plans with these settings and each of kOffloadPercents. The list ends
  // before the first that cannot be reached.
  std::vector<Bytes> least_peaks_offloaded(const LeverSettings& settings);
  Result<Plan> pack();  // makes the plan that was outlined
  Result<std::optional<Plan>> compile(const LeverSettings& settings, bool last = false);

  // Compiles one more phase for a plan with this layout of persistent values.
  static Result<std::optional<PhasePlan>> compile_phase(const SearchRequest& request, const LeverSettings& settings,
                                                        Phase phase, const PersistentLayout& persistent);

 private:
  Compiler(const SearchRequest& request, const LeverSettings& settings) : request_(&request), settings_(settings) {}

  Status add(Result<Phase> made, double repeats);
  Status add_training();
  Status lay_out_persistent();
  void order_phases();
  bool rewrite_ordered(const LeverSettings& settings, size_t first_lever, size_t last_lever);
  bool prepare_offload(const LeverSettings& settings, size_t offload);
  std::optional<RewrittenPhase> rewrite_phase(const Lever& lever, size_t phase, Bytes most, int64_t setting) const;
  const std::vector<RecomputeUnits>& units();
  void plan_phases();
  Bytes highest() const;
  template <typename MakePhase>
  Status add_inference(int64_t batch, int64_t samples, bool whole, MakePhase make);
  Bytes overhead() const;
  Bytes least_data() const;
  Plan finish();

  const SearchRequest* request_;
  LeverSettings settings_;
  std::map<std::string_view, int64_t> counted_in_training_;  // per joint-graph lever, the most in any phase
  std::vector<LoweredPhase> training_, phases_;
  PersistentLayout layout_;
  std::vector<RecomputeUnits> units_;  // of training_; empty until they are asked for
  // Of each phase in training_: its path, and where it was at each setting.
  struct Steps {
    RecomputePath path;
    std::map<int64_t, RecomputePath::Mark> marks;
  };
  std::vector<Steps> steps_;  // empty until recompute_points() is called
  // The training phases before offload, which takes much of the time of a plan: plans that differ only in offload share
  // them.
  struct BeforeOffload {
    LeverSettings settings;
    std::vector<LoweredPhase> phases;
    std::map<std::string_view, int64_t> counted;
  };
  std::optional<BeforeOffload> before_offload_;
  // State of the plan that is being compiled.
  std::map<std::string_view, int64_t> counted_;
  Plan plan_;
};

}  // namespace plimsoll::engine
