// One candidate: the program for a micro-batch and a choice of levers, lowered and planned.
#pragma once

#include <span>

#include "search/search.h"

namespace plimsoll {

// How much is computed again: 0 nothing, 1 what is cheap (recompute_cheap), from 2 on costly nodes too, each level
// leaving less alive for more time.
constexpr int kMostRecompute = 10;

// What of the live set stays on the device under offload: each share is tried, from the largest down.
inline constexpr double kKept[] = {0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1};

// The levels worth a plan for this micro-batch, ascending from 0; those above 1 only if `costly`.
Result<std::vector<int>> recompute_levels(const SearchRequest& request, int64_t micro, bool costly);

Result<Plan> build_plan(const SearchRequest& request, int64_t micro, int recompute);

// The same and plans under offload: `kept` of the live set stays on the device. Ends where less cannot be reached.
Result<std::vector<Plan>> build_plans(const SearchRequest& request, int64_t micro, int recompute,
                                      std::span<const double> kept);

// How the arena without levers grows with the batch: fixed_bytes and bytes_per_sample of the result.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll
