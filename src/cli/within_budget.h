// Reading a model and planning it inside the budget, and the word at the end on whether the budget was kept.
#pragma once

#include <new>

#include "cli/command.h"
#include "device/heap_limit.h"

namespace plimsoll {

// What reading and planning may hold: the budget, where it is the host's; else what the host has free. Before a device
// is opened, and after.
Bytes reading_budget(const JobOptions& job);
Bytes planning_budget(const Budget& budget, const Device& device);
Error planning_does_not_fit(const JobOptions& job, Bytes most);

// The result of `work`, or P301 where it takes more memory than `most`.
template <typename Work>
auto within_budget(const JobOptions& job, Bytes most, Work work) -> decltype(work()) {
  try {
    const HeapLimit limit(most);
    auto result = work();
    if (result || result.error().code != ErrorCode::kOutOfMemory || !HeapLimit::refused()) return result;
  } catch (const std::bad_alloc&) {
    if (!HeapLimit::refused()) throw;  // the machine has no more
  }
  return fail(planning_does_not_fit(job, most));
}

// P304 where the process held more than its budget. Called after everything was saved; `saved` says where.
Status check_peak(const Session& session, const Budget& budget, const std::string& saved);

}  // namespace plimsoll
