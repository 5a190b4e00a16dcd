#include "search/lever_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "levers/chunk_logits.h"
#include "levers/recompute_steps.h"
#include "levers/split_batch.h"
#include "plan/recompute.h"
#include "search/half_precision.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"

namespace plimsoll::engine {

const LeverTable& lever_table() {
  static const LeverTable table = {
      // Setting: samples per micro-batch.
      {.name = kMicroBatch, .effect = Effect::kRounding, .stage = LeverStage::kProgram, .count = accumulation_steps},
      // Setting: pieces of the batch inside one phase.
      {.name = kSplit,
       .effect = Effect::kRounding,
       .stage = LeverStage::kJointGraph,
       .values = kSplitValues,
       .rewrite = [](Graph graph, const Device&, int64_t pieces) { return split_batch(std::move(graph), pieces); }},
      // Setting: chunks of rows of the logits of a large vocabulary.
      {.name = kChunkLogits,
       .effect = Effect::kRounding,
       .stage = LeverStage::kJointGraph,
       .values = kChunkLogitsValues,
       .rewrite = [](Graph graph, const Device&, int64_t chunks) { return chunk_logits(std::move(graph), chunks); }},
      // Setting: 1, the loops over time keep the states before some steps instead of everything.
      {.name = kRecomputeSteps,
       .effect = Effect::kRounding,
       .stage = LeverStage::kJointGraph,
       .values = kRecomputeStepsValues,
       .rewrite = [](Graph graph, const Device&, int64_t) { return recompute_steps(std::move(graph)); }},
      // Setting: percent of the live set that is recomputed instead of kept.
      {.name = kRecompute,
       .stage = LeverStage::kOrderedGraph,
       .values = kRecomputePercents,
       .rewrite_ordered = recompute_percent},
      // Setting: percent of the live set that is offloaded to host memory.
      {.name = kOffload,
       .stage = LeverStage::kOrderedGraph,
       .values = kOffloadPercents,
       .rewrite_ordered = offload_percent},
      // Setting: number of requests read ahead.
      {.name = kPrefetch, .stage = LeverStage::kData, .values = kPrefetchValues},
      // Setting: 1 for statistics per micro-batch.
      {.name = kPerMicroBatchNorm,
       .effect = Effect::kTraining,
       .stage = LeverStage::kProgram,
       .flag = "--batchnorm",
       .values = kPerMicroBatchNormValues,
       .widens = kMicroBatch,
       .remedy = batchnorm_remedy},
      // The setting is the plan's `precision`, which names the dtypes of weights and computation.
      {.name = kHalfPrecision,
       .effect = Effect::kTraining,
       .stage = LeverStage::kProgram,
       .flag = "--precision",
       .remedy = precision_remedy},
  };
  return table;
}

std::vector<std::string> searched_levers(const LeverTable& table) {
  std::vector<std::string> names;
  for (const Lever& lever : table)
    if (lever.is_searched()) names.emplace_back(lever.name);
  return names;
}

std::string impossible_setting(const Plan& plan, const LeverTable& table) {
  for (const auto& [name, value] : plan.settings.values()) {
    const auto lever =
        std::find_if(table.begin(), table.end(), [&, &name = name](const Lever& one) { return one.name == name; });
    if (lever == table.end()) return fmt::format("there is no lever '{}'", name);
    // validate() has already checked settings that depend on the batch.
    const bool known =
        lever->values.empty() || std::find(lever->values.begin(), lever->values.end(), value) != lever->values.end();
    if (!known) return fmt::format("lever {} has no setting {}", name, value);
  }
  return {};
}

std::vector<LeverUse> levers_used(const Plan& plan, const std::map<std::string_view, int64_t>& counted,
                                  const LeverTable& table) {
  std::vector<LeverUse> used;
  for (auto lever = table.rbegin(); lever != table.rend(); ++lever) {
    const auto found = counted.find(lever->name);
    const int64_t count = lever->count != nullptr ? lever->count(plan) : found != counted.end() ? found->second : 0;
    if (count == 0) continue;
    Effect effect = lever->effect;
    for (const Lever& wider : table)
      if (wider.widens == lever->name && plan.settings.of(wider.name) != 0) effect = std::max(effect, wider.effect);
    used.push_back({std::string(lever->name), count, 0, 0, effect});
  }
  return used;
}

}  // namespace plimsoll::engine
