// Reading a model and planning it inside the budget: RunOptions::limit_process.
#pragma once

#include <new>

#include "api/options.h"
#include "api/request.h"
#include "device/heap_limit.h"

namespace plimsoll::engine {

// What reading and planning may hold: the budget, where it is the host's; else what the host has free. Before a device
// is opened, and after.
Bytes reading_limit(const RunOptions& options);
Bytes planning_limit(const Budget& budget, const Device& device);
Error planning_does_not_fit(const RunOptions& options, Bytes most);

// The result of `work`, or P301 where it takes more memory than `most`.
template <typename Work>
auto within_limit(const RunOptions& options, Bytes most, Work work) -> decltype(work()) {
  if (!options.limit_process) return work();
  try {
    const HeapLimit limit(most);
    auto result = work();
    if (result || result.error().code != ErrorCode::kOutOfMemory || !HeapLimit::refused()) return result;
  } catch (const std::bad_alloc&) {
    if (!HeapLimit::refused()) throw;  // the machine has no more
  }
  return fail(planning_does_not_fit(options, most));
}

}  // namespace plimsoll::engine
