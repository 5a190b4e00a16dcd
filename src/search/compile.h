// The compiler driver: from a request and the settings of its levers to a plan, by way of program, levers, lowering,
// order and packing.
#pragma once

#include <map>
#include <optional>

#include "search/search.h"

namespace plimsoll::engine {

// The plan with these settings. None where a lever cannot reach its setting. Prefetch is not taken from them: it is
// granted where it fits the budget.
Result<std::optional<Plan>> compile(const SearchRequest& request, const LeverSettings& settings);

// A phase whose bytes and seconds are known.
struct LoweredPhase {
  PhaseName name;
  int64_t samples = 0;
  LoweredGraph graph;
  double repeats = 0;            // runs of it in one full window
  Bytes live = 0;                // largest live set, once it was ordered
  bool keeps_its_order = false;  // a lever of ordered graphs changed it
};

// Compiles settings that differ only in the levers of ordered graphs: whatever comes before is done once.
class Compiler {
 public:
  // Lowers the phases of training, which all these plans have in common.
  static Result<Compiler> create(const SearchRequest& request, const LeverSettings& settings);

  // A lower bound on the seconds of a step: every offloaded byte crosses the link at least once.
  double seconds_of_copies(int64_t offload_percent);

  // The `last` plan takes the lowered phases with it instead of copying them.
  Result<std::optional<Plan>> compile(const LeverSettings& settings, bool last);

  // One more phase for a plan whose persistent values lie so.
  static Result<std::optional<PhasePlan>> compile_phase(const SearchRequest& request, const LeverSettings& settings,
                                                        Phase phase, const PersistentLayout& persistent);

 private:
  Compiler(const SearchRequest& request, const LeverSettings& settings) : request_(&request), settings_(settings) {}

  Status add(Result<Phase> made, double repeats);
  Status add_training();
  Status lay_out_persistent();
  void order_training();
  bool rewrite_ordered();
  void plan_phases();
  Bytes highest() const;
  template <typename MakePhase>
  Status add_inference(int64_t batch, int64_t samples, MakePhase make);
  Bytes overhead() const;
  Bytes least_data() const;
  Plan finish();

  const SearchRequest* request_;
  LeverSettings settings_;
  std::map<std::string_view, int64_t> counted_in_training_;  // per joint-graph lever, the most in any phase
  std::vector<LoweredPhase> training_, phases_;
  bool ordered_ = false;  // the training phases, for little to be alive
  Bytes most_live_ = 0;   // of them
  PersistentLayout layout_;
  // Of the plan in the making.
  std::map<std::string_view, int64_t> counted_;
  Plan plan_;
};

// The graph of the phase that reads a batch, as the joint-graph levers leave it.
Result<Graph> joint_graph(const SearchRequest& request, const LeverSettings& settings);

}  // namespace plimsoll::engine
