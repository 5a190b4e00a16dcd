// Search enumerates settings of the levers (enumerate.h), compiles each into a candidate (compile.h), and selects the
// fastest that fits (selection.h).
//
// Limited by work, not by seconds: the same inputs give the same plan. The budget selects among candidates that do not
// depend on it, so less budget never needs more memory and more budget is never slower. Candidates that cost time for
// bytes that are not missing cannot be selected; they are compiled only to say what the least is.
#pragma once

#include <optional>
#include <set>

#include "plan/plan.h"
#include "search/lever_table.h"

namespace plimsoll::engine {

// The bytes that data take beside the arena. On a device with memory of its own a batch is always staged there;
// elsewhere it is read straight into the arena, unless a thread reads the next one ahead.
struct DataDemand {
  Bytes per_sample = 0;      // of one staged sample: inputs, targets and weights
  Bytes padding = 0;         // of a staged batch: each of its arrays starts on a cache line
  bool reads_ahead = false;  // the caller has a Prefetcher (data/prefetcher.h)
  Bytes fixed = 0;           // of reading ahead: what does not grow with the batch
  Bytes held_before = 0;     // of the device's memory, by the program that calls us: it counts against the budget too
};

struct SearchRequest {
  const Model* model = nullptr;
  const Device* device = nullptr;
  const LeverTable* levers = &lever_table();
  GraphOptions graph;
  int64_t batch = 32;                  // the effective batch; 0: no training phases
  std::optional<int64_t> micro_batch;  // absent: chosen
  // The user's own cut of the effective batch: micro-batches are no larger than a piece of it.
  int64_t accumulation_steps = 1;
  int64_t partial_window = 0;    // samples of an epoch's last window where it is smaller; 0: none or unknown
  int64_t evaluate_batch = 0;    // 0: no evaluation
  int64_t evaluate_samples = 0;  // 0: unknown, no tail
  int64_t predict_batch = 0;
  int64_t predict_samples = 0;
  bool per_micro_batch_norm = false;  // the user allowed statistics per micro-batch
  std::set<std::string> forbidden;    // levers that search may not use, by name
  DataDemand data;
  Bytes budget = 0;                // of the whole process; 0: unlimited
  Bytes host_budget = 0;           // of values that wait in the host's memory; 0: unlimited
  bool host_budget_asked = false;  // by the user
  // Persistent values of an arena that other plans of this model run in too (Session::kept): the plan leaves them where
  // they are. Empty: an arena of its own.
  std::vector<PersistentSlot> arena;
  bool find_least = true;  // whether to say what the smallest plan needs, also where something fits

  bool forbids(std::string_view lever) const { return forbidden.count(std::string(lever)) != 0; }
  // The largest piece that the user's own cut leaves.
  int64_t piece() const { return (batch + accumulation_steps - 1) / accumulation_steps; }
};

struct Candidate {
  LeverSettings settings;
  Bytes host_bytes = 0;
  Bytes arena_bytes = 0;
  Bytes peak_bytes = 0;
  double seconds = 0;
};

struct SearchResult {
  Plan plan;  // the fastest that fits, or the smallest if none does
  bool fits = false;
  std::vector<Candidate> candidates;
  Bytes least_bytes = 0;            // whole process, of the smallest candidate; 0 where that was not asked
  Bytes fixed_bytes = 0;            // of the arena without levers: what does not grow with the batch
  Bytes bytes_per_sample = 0;       // and what one more sample adds
  Bytes unlevered_arena_bytes = 0;  // arena of the whole batch without any lever
  double unlevered_seconds = 0;     // and its step
  double seconds = 0;               // how long the search took
};

Result<SearchResult> search(const SearchRequest& request);

// The phase of this kind for a batch of a size the plan did not foresee, with the plan's settings, inside the same
// arena. Where that does not fit, with more of the levers that the plan uses.
Result<PhasePlan> plan_tail(const SearchRequest& request, const Plan& plan, PhaseKind kind, int64_t samples);

// The error of a result that does not fit, with what is missing and what would help.
Error does_not_fit(const SearchRequest& request, const SearchResult& result);

}  // namespace plimsoll::engine
