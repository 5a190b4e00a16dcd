// Whether a plan that was made before, by `plan --save` or by the run a checkpoint stems from, is a plan of this run.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

// A digest of what one window computes before any lever: layers, loss, metrics, optimizer, types of the data. It does
// not depend on how the planner orders or packs.
Result<std::string> program_digest(const SearchRequest& request, int64_t micro);

// The ways in which `plan` was not made for `request`, one line each; none if it matches. A plan may have more than the
// request asks for, a phase to evaluate with for example.
Result<std::vector<std::string>> differences(const Plan& plan, const SearchRequest& request);

}  // namespace plimsoll::engine
