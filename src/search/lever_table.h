// The table of levers: all that search, saved plans, reports and flags know about a lever stands in its row.
// docs/internals/adding-a-lever.md shows how to add one.
#pragma once

#include <span>

#include "plan/offload.h"
#include "plan/plan.h"

namespace plimsoll::engine {

struct SearchRequest;
struct SearchResult;

// Where in the pipeline a lever acts. Levers of one stage are applied in the table's order.
enum class LeverStage : uint8_t {
  kProgram,       // which phases there are, and what they compute: model/ and program
  kJointGraph,    // the graph of a phase with its gradients, before lower/
  kOrderedGraph,  // the lowered graph, its nodes in the order they run
  kData,          // beside the phases: how batches are read
};

struct Lever {
  std::string_view name;  // in --forbid and --allow, in plans and reports
  Effect effect = Effect::kBitwise;
  LeverStage stage = LeverStage::kProgram;
  // The flag that alone turns it on. Empty: search chooses the setting, unless --forbid or --allow say otherwise.
  std::string_view flag = {};
  // The settings beside 0, from the one that changes least on. Empty: they depend on the batch.
  std::span<const int64_t> values = {};

  // How it is applied, by stage. Levers of kProgram and kData are read where phases and data buffers are made.
  Rewritten (*rewrite)(Graph graph, const Device& device, int64_t setting) = nullptr;
  // None where the setting cannot be reached.
  std::optional<Offloaded> (*rewrite_ordered)(const OrderedPhase& phase, const Device& device,
                                              int64_t setting) = nullptr;

  // How a plan's list of levers counts it. Levers of the two graph stages count what their rewrite says: the largest
  // number of any phase. Without `count` or a rewrite, a lever is recorded in the settings only, and has no price.
  int64_t (*count)(const Plan& plan) = nullptr;
  // Has no entry of its own in that list: it widens what this lever does, whose entry shows the effect.
  std::string_view widens = {};

  // Adds to the error of a plan that does not fit: what turning the lever on would need, in the lever's words.
  void (*add_remedy)(const SearchRequest& request, const SearchResult& result, Error& error) = nullptr;

  bool is_searched() const { return flag.empty(); }
  bool is_priced() const { return count != nullptr || rewrite != nullptr || rewrite_ordered != nullptr; }
};

using LeverTable = std::vector<Lever>;

// In the order in which levers are applied, priced and named to the user.
const LeverTable& lever_table();

// The levers that --forbid and --allow know.
std::vector<std::string> searched_levers(const LeverTable& table = lever_table());

// Why no plan can have been made with these settings; empty: one can.
std::string impossible_setting(const Plan& plan, const LeverTable& table = lever_table());

// The levers that the plan uses, the last applied first. `counted`: by name, what rewrites counted. Prices are added
// when it is known what else could have been chosen.
std::vector<LeverUse> levers_used(const Plan& plan, const std::map<std::string_view, int64_t>& counted,
                                  const LeverTable& table);

}  // namespace plimsoll::engine
