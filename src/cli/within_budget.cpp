#include "cli/within_budget.h"

#include <fmt/format.h>

#include "device/host_room.h"
#include "device/process_memory.h"

namespace plimsoll {

Bytes reading_budget(const JobOptions& job) {
  return job.budget.value_or(free_host_bytes());
}

Bytes planning_budget(const Budget& budget, const Device& device) {
  return device.info().own_memory ? free_host_bytes() : budget.bytes;
}

Error planning_does_not_fit(const JobOptions& job, Bytes most) {
  Error error{ErrorCode::kDoesNotFit,
              fmt::format("reading and planning {} takes more than {}", job.model,
                          format_bytes(std::max(most, HeapLimit::kGranted))),
              {"nothing was planned: what the file asks for is not known"},
              {}};
  error.remedy("a larger --budget");
  return error.remedy("if a model of this size is not expected: the file may be damaged or made to do harm");
}

Status check_peak(const Session& session, const Budget& budget, const std::string& saved) {
  const Bytes peak = session.peak_held_bytes();
  if (peak <= budget.bytes || peak - budget.bytes <= held_by_tools()) return {};
  Error error{
      ErrorCode::kPeakAboveBudget,
      fmt::format("the process held {} at its peak, the budget is {}", format_bytes(peak), format_bytes(budget.bytes)),
      {saved.empty() ? "the results are right, and were printed" : "nothing is lost: " + saved},
      {}};
  return fail(std::move(error.remedy("report this with the command and the output of 'plimsoll doctor'")));
}

}  // namespace plimsoll
