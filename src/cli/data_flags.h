// The data flags that `plan` and `fit` share. With the same flags, both search for the same plan.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

// Adds --data with the help text `data_text`, and the flags for validation and class weights.
CLI::Option* add_data_flags(CLI::App& command, DataOptions& options, const std::string& data_text);
// Adds the flags that say how --data is read, which all commands with --data have.
void add_reading_flags(CLI::App& command, ReadOptions& options);
// Reads "224,224", or "224" for a square. Throws CLI's error, which names the flag.
std::array<int64_t, 2> parse_image_size(const std::string& text, const std::string& flag);
Status check_data_flags(const DataOptions& options);

}  // namespace plimsoll::engine
