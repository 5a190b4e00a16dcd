// The public interface's options as the one set of options that a run is made with.
#pragma once

#include <set>

#include "api/options.h"
#include "plimsoll/options.h"

namespace plimsoll::engine {

// P201 for an option that is out of range or names nothing.
Result<RunOptions> run_options(const plimsoll::Options& options);

// The levers that a search may not use: those of `forbid`, and all but those of `allow` if that is not empty. P201 for
// a lever that does not exist, or one that is in both lists.
Result<std::set<std::string>> forbidden_levers(const std::vector<std::string>& forbid,
                                               const std::vector<std::string>& allow);

}  // namespace plimsoll::engine
