// Converts the options of the public interface to RunOptions.
#pragma once

#include <set>

#include "api/options.h"
#include "plimsoll/options.h"

namespace plimsoll::engine {

// Fails with P201 if an option is out of range or has an unknown name as its value.
Result<RunOptions> run_options(const plimsoll::Options& options);

// Returns the levers that a search may not use: those in `forbid` and, if `allow` is not empty, all that are not in
// `allow`. Fails with P201 if a lever does not exist or is in both lists.
Result<std::set<std::string>> forbidden_levers(const std::vector<std::string>& forbid,
                                               const std::vector<std::string>& allow);

}  // namespace plimsoll::engine
