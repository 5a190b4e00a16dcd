// One candidate: the program for a micro-batch and a choice of levers, lowered and planned.
#pragma once

#include "search/search.h"

namespace plimsoll {

// How much is computed again: 0 nothing, 1 what is cheap (recompute_cheap), from 2 on costly nodes too, each level
// leaving less alive for more time.
constexpr int kMostRecompute = 10;

// The levels worth a plan for this micro-batch, ascending from 0; those above 1 only if `costly`.
Result<std::vector<int>> recompute_levels(const SearchRequest& request, int64_t micro, bool costly);

Result<Plan> build_plan(const SearchRequest& request, int64_t micro, int recompute);

// How the arena without levers grows with the batch: fixed_bytes and bytes_per_sample of the result.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll
