// Enumerates the lever settings that search tries, in order.
#pragma once

#include "search/selection.h"

namespace plimsoll::engine {

// Compiles each candidate and passes it to `selection`. The candidates do not depend on the budget, except that
// candidates that cannot be selected are skipped unless `find_least`.
Status try_candidates(const SearchRequest& request, bool find_least, Selection& selection);

}  // namespace plimsoll::engine
