// Search enumerates settings of the levers (enumerate.h), compiles each into a candidate (compile.h), and selects the
// fastest that fits (selection.h).
//
// Search is limited by work, not by seconds, so the same inputs always give the same plan. The budget selects among
// candidates that do not depend on it. So a smaller budget never needs more memory, and a larger budget is never
// slower. Candidates that spend time to save bytes that are not needed cannot be selected; they are compiled only to
// find the smallest plan.
#pragma once

#include <algorithm>
#include <optional>
#include <set>

#include "plan/plan.h"
#include "search/lever_table.h"

namespace plimsoll::engine {

// The bytes that data need outside the arena. A device with its own memory always has a staged batch there. On other
// devices a batch is read directly into the arena, unless a thread reads the next one ahead.
struct DataDemand {
  Bytes per_sample = 0;      // one staged sample: inputs, targets and weights
  Bytes padding = 0;         // alignment of the arrays in a staged batch
  bool reads_ahead = false;  // the caller has a Prefetcher (data/prefetcher.h)
  Bytes fixed = 0;           // part of prefetch that does not grow with the batch
  Bytes readers = 0;         // host memory of readers that decode or parse: their buffers, indices and libraries
  Bytes held_before = 0;     // device memory that the calling program already holds; it counts against the budget
};

struct SearchRequest {
  const Model* model = nullptr;
  const Device* device = nullptr;
  const LeverTable* levers = &lever_table();
  GraphOptions graph;
  int64_t batch = 32;                  // the effective batch; 0: no training phases
  std::optional<int64_t> micro_batch;  // absent: search chooses it
  // --gradient-accumulation-steps: the user splits the effective batch into this many pieces. Micro-batches are no
  // larger than such a piece.
  int64_t accumulation_steps = 1;
  int64_t partial_window = 0;    // samples of an epoch's last window if it is smaller; 0: none or unknown
  int64_t evaluate_batch = 0;    // 0: no evaluation
  int64_t evaluate_samples = 0;  // 0: unknown, and no tail phase
  int64_t predict_batch = 0;
  int64_t predict_samples = 0;
  bool per_micro_batch_norm = false;  // the user allowed statistics per micro-batch
  std::set<std::string> forbidden;    // names of levers that search may not use
  DataDemand data;
  Bytes budget = 0;                // of the whole process; 0: unlimited
  Bytes host_budget = 0;           // for offloaded values in host memory; 0: unlimited
  bool host_budget_asked = false;  // the user gave --host-budget
  // Persistent values of an arena that this plan shares with other plans of the model (Session::kept). The plan keeps
  // their places. Empty: the plan has its own arena.
  std::vector<PersistentSlot> arena;
  bool find_least = true;   // find the smallest plan even if some plan fits
  bool only_price = false;  // the caller reads only the plan's bytes and seconds: no growth, no prices of levers

  bool forbids(std::string_view lever) const { return forbidden.count(std::string(lever)) != 0; }
  // Samples of the largest piece if the user splits the batch by accumulation_steps.
  int64_t piece() const { return (batch + accumulation_steps - 1) / accumulation_steps; }
};

struct Candidate {
  LeverSettings settings;
  Bytes host_bytes = 0;
  Bytes arena_bytes = 0;
  Bytes peak_bytes = 0;
  double seconds = 0;  // of the kernels of a step
  // Lower bound on them for these live bytes if only recompute saves memory; 0: unknown.
  double least_seconds = 0;
};

// A setting of recompute on the path of one micro-batch size. It is not packed, so its bytes are an estimate.
struct PathPoint {
  LeverSettings settings;
  Bytes peak_bytes = 0;  // of the process if packing loses nothing
  double seconds = 0;    // of the kernels of a step
};

struct SearchResult {
  Plan plan;  // the fastest plan that fits, or the smallest plan if none fits
  bool fits = false;
  std::vector<Candidate> candidates;
  std::vector<PathPoint> path;      // of the micro-batch sizes whose settings of recompute were looked at
  Bytes least_bytes = 0;            // of the whole process, for the smallest candidate; 0 if not requested
  Bytes fixed_bytes = 0;            // arena without levers: the part that does not grow with the batch
  Bytes bytes_per_sample = 0;       // arena without levers: the bytes that one more sample adds
  Bytes unlevered_arena_bytes = 0;  // arena of the whole batch without any lever
  double unlevered_seconds = 0;     // the same: seconds of the kernels of a step
  // Lower bound on the kernels' seconds of the plan's step: no other choice of what to recompute takes less for these
  // live bytes, in this order, with these kernels and this micro-batch. 0: unknown, because the plan uses no recompute
  // or offload as well.
  double least_compute_seconds = 0;
  double seconds = 0;  // duration of the search

  // Seconds of a step of the whole batch without levers, its data included.
  double unlevered_step_seconds() const { return std::max(unlevered_seconds, plan.input_seconds); }
};

Result<SearchResult> search(const SearchRequest& request);

// Plans a phase of this kind for a batch size that the plan does not have, with the plan's settings and inside the same
// arena. If that does not fit, tries stronger settings of the levers that the plan uses.
Result<PhasePlan> plan_tail(const SearchRequest& request, const Plan& plan, PhaseKind kind, int64_t samples);

// Returns the error for a result that does not fit. It says how much is missing and which remedies would help
// (remedies.h).
Error does_not_fit(const SearchRequest& request, const SearchResult& result);
// The same without remedies, which take time to plan.
Error shortage(const SearchRequest& request, const SearchResult& result);

}  // namespace plimsoll::engine
