// How the arena grows with the batch.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

// Fills unlevered_*, fixed_bytes and bytes_per_sample of the result: what the whole batch takes without levers, and how
// much of that one sample adds.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll::engine
