// One candidate: the program for a micro-batch and a choice of levers, lowered and planned.
#pragma once

#include "search/search.h"

namespace plimsoll {

Result<Plan> build_plan(const SearchRequest& request, int64_t micro, bool recompute);

// How the arena without levers grows with the batch: fixed_bytes and bytes_per_sample of the result.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll
