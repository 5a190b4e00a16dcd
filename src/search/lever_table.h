// The lever table. Search, saved plans, reports and flags know a lever only through its row here.
// docs/internals/adding-a-lever.md shows how to add one.
#pragma once

#include <span>

#include "plan/offload.h"
#include "plan/plan.h"

namespace plimsoll::engine {

struct SearchRequest;
struct SearchResult;
struct Remedy;

// Where in the pipeline a lever acts. Levers of one stage are applied in the table's order.
enum class LeverStage : uint8_t {
  kProgram,       // on the choice of phases and what they compute: model/ and program
  kJointGraph,    // on the graph of a phase with its gradients, before lower/
  kOrderedGraph,  // on the lowered graph, with its nodes in execution order
  kData,          // outside the phases, on how batches are read
};

struct Lever {
  std::string_view name;  // used in --forbid and --allow, in plans and in reports
  Effect effect = Effect::kBitwise;
  LeverStage stage = LeverStage::kProgram;
  // The only flag that turns the lever on. Empty: search chooses the setting, unless --forbid or --allow exclude the
  // lever.
  std::string_view flag = {};
  // All settings except 0, starting with the one that changes least. Empty: the settings depend on the batch.
  std::span<const int64_t> values = {};

  // Applies the lever: `rewrite` in stage kJointGraph, `rewrite_ordered` in stage kOrderedGraph. The code that makes
  // phases and data buffers reads the settings of kProgram and kData levers itself.
  Rewritten (*rewrite)(Graph graph, const Device& device, int64_t setting) = nullptr;
  // Returns none if the setting cannot be reached.
  std::optional<RewrittenPhase> (*rewrite_ordered)(const OrderedPhase& phase, const Device& device,
                                                   int64_t setting) = nullptr;

  // Returns the count for the plan's list of levers. For a lever of the two graph stages, the count comes from its
  // rewrite: the largest number of any phase. A lever without `count` and rewrite is recorded only in the settings, and
  // its bytes and seconds are not reported.
  int64_t (*count)(const Plan& plan) = nullptr;
  // Not empty: the lever has no entry of its own in that list. It extends the lever named here, whose entry shows the
  // effect.
  std::string_view widens = {};

  // Returns a remedy for a model that does not fit, if turning the lever on is one.
  std::optional<Remedy> (*remedy)(const SearchRequest& request, const SearchResult& result) = nullptr;

  bool is_searched() const { return flag.empty(); }
  bool is_priced() const { return count != nullptr || rewrite != nullptr || rewrite_ordered != nullptr; }
};

using LeverTable = std::vector<Lever>;

// The table is in the order in which levers are applied, priced and shown to the user.
const LeverTable& lever_table();

// Returns the levers that --forbid and --allow accept.
std::vector<std::string> searched_levers(const LeverTable& table = lever_table());

// Returns why no plan can have these settings, or "" if they are possible.
std::string impossible_setting(const Plan& plan, const LeverTable& table = lever_table());

// Returns the levers that the plan uses, the last applied first. `counted` has the counts of the rewrites, by lever
// name. search() fills in the saved bytes and the seconds later, when it knows the other candidates.
std::vector<LeverUse> levers_used(const Plan& plan, const std::map<std::string_view, int64_t>& counted,
                                  const LeverTable& table);

}  // namespace plimsoll::engine
