// The ways of `plimsoll shrink`: one file and one row of the table in shrink.cpp per way.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

// Each function adds one subcommand of `shrink` with its flags, and stores its action in `actions`.
void add_shrink_distill(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
void add_shrink_quantize(CLI::App& shrink, std::map<CLI::App*, Action>& actions);

}  // namespace plimsoll::engine
