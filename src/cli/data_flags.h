// The data flags that `plan` and `fit` share: with the same flags both search the same plan.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

// --data with `data_text` as its help, and the flags of validation and class weights.
CLI::Option* add_data_flags(CLI::App& command, DataOptions& options, const std::string& data_text);
Status check_data_flags(const DataOptions& options);

}  // namespace plimsoll::engine
