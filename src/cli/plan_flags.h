// The flags of `plimsoll plan`.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

struct PlanFlags : CommonFlags {
  const CLI::App* command = nullptr;
  std::string save, html, svg, memory_viz;
  bool list = false, details = false, brief = false;
  std::vector<int64_t> batches;  // of --batch-size 8,16,32, the largest first; empty: one batch, or auto
  int64_t max_batch = 0;
  double scale_filters = 1;
  bool all_devices = false;

  void add(CLI::App& command);
  // As CommonFlags::resolve(), with the flags that only `plan` has.
  Status resolve_plan();
};

// Returns the flags that the user gave, by the command line or the environment, with their last values. Flags that
// choose only what is printed or written are left out.
std::vector<std::pair<std::string, std::string>> typed_flags(const CLI::App& command);

}  // namespace plimsoll::engine
