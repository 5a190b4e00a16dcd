// Computes how the arena grows with the batch.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

// Fills unlevered_*, fixed_bytes and bytes_per_sample of the result: the cost of the whole batch without levers, the
// part of the arena that does not depend on the batch, and the bytes that one more sample adds.
Status fill_growth(const SearchRequest& request, SearchResult& result);

}  // namespace plimsoll::engine
