// Limits the memory for reading and planning a model to the budget (RunOptions::limit_process).
#pragma once

#include <new>

#include "api/options.h"
#include "api/request.h"
#include "device/heap_limit.h"

namespace plimsoll::engine {

// The limit before a device is opened: the budget if the user set one, otherwise the free host memory.
Bytes reading_limit(const RunOptions& options);
// The limit after the device is opened: the budget if it is for host memory, otherwise the free host memory.
Bytes planning_limit(const Budget& budget, const Device& device);
Error planning_does_not_fit(const RunOptions& options, Bytes most);

// Returns the result of `work`. Fails with P301 if `work` needs more memory than `most`.
template <typename Work>
auto within_limit(const RunOptions& options, Bytes most, Work work) -> decltype(work()) {
  if (!options.limit_process) return work();
  try {
    const HeapLimit limit(most);
    auto result = work();
    if (result || result.error().code != ErrorCode::kOutOfMemory || !HeapLimit::refused()) return result;
  } catch (const std::bad_alloc&) {
    if (!HeapLimit::refused()) throw;  // the machine itself is out of memory
  }
  return fail(planning_does_not_fit(options, most));
}

}  // namespace plimsoll::engine
