// Checks whether an existing plan, from `plan --save` or from a checkpoint, is a plan for this run.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

// Returns a digest of what one window computes before any lever: layers, loss, metrics, optimizer, types of the data.
// It does not depend on ordering or packing.
Result<std::string> program_digest(const SearchRequest& request, int64_t micro);

// Returns the ways in which `plan` does not match `request`, one line each; none if it matches. A plan may have more
// than the request needs, for example an additional phase for evaluation.
Result<std::vector<std::string>> differences(const Plan& plan, const SearchRequest& request);

}  // namespace plimsoll::engine
