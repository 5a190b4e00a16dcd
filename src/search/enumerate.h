// The settings that search tries, in order.
#pragma once

#include "search/selection.h"

namespace plimsoll::engine {

// Compiles each candidate and hands it to `selection`. The same candidates whatever the budget is, except that what
// cannot be selected is left out unless `find_least`.
Status try_candidates(const SearchRequest& request, bool find_least, Selection& selection);

}  // namespace plimsoll::engine
