// The compiler driver: compiles a request with given lever settings into a plan. Its stages are program, levers,
// lowering, ordering and packing.
#pragma once

#include <map>
#include <optional>

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
  double repeats = 0;            // number of runs in one full window
  Bytes live = 0;                // largest live set; known after ordering
  bool keeps_its_order = false;  // a lever of the kOrderedGraph stage changed it, so it must not be reordered
};

// Compiles settings that differ only in levers of the kOrderedGraph stage. All earlier stages run only once.
class Compiler {
 public:
  // Lowers the training phases, which all these plans share.
  static Result<Compiler> create(const SearchRequest& request, const LeverSettings& settings);

  // A lower bound on the seconds of a step: every offloaded byte crosses the link at least once.
  double seconds_of_copies(int64_t offload_percent);

  // The `last` plan takes the lowered phases with it instead of copying them.
  Result<std::optional<Plan>> compile(const LeverSettings& settings, bool last);

  // Compiles one more phase for a plan with this layout of persistent values.
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
  bool ordered_ = false;  // whether the training phases are already ordered for a small live set
  Bytes most_live_ = 0;   // largest live set of the training phases
  PersistentLayout layout_;
  // State of the plan that is being compiled.
  std::map<std::string_view, int64_t> counted_;
  Plan plan_;
};

// Returns the graph of the phase that reads a batch, after the joint-graph levers.
Result<Graph> joint_graph(const SearchRequest& request, const LeverSettings& settings);

}  // namespace plimsoll::engine
