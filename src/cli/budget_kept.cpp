#include "cli/budget_kept.h"

#include <fmt/format.h>

#include "device/process_memory.h"

namespace plimsoll::engine {

Status check_peak(const Session& session, const Budget& budget, const std::string& saved) {
  return check_peak(session.peak_held_bytes(), budget.bytes, saved);
}

Status check_peak(Bytes peak, Bytes budget, const std::string& saved) {
  if (peak <= budget || peak - budget <= held_by_tools()) return {};
  Error error{
      ErrorCode::kPeakAboveBudget,
      fmt::format("the process held {} at its peak, but the budget is {}", format_bytes(peak), format_bytes(budget)),
      {saved.empty() ? "the results are correct and were printed" : "nothing is lost: " + saved},
      {}};
  return fail(std::move(error.remedy("report this with the command and the output of 'plimsoll doctor'")));
}

std::string peak_text(const Session& session, const Budget& budget) {
  std::string text =
      fmt::format("process peak: {} of {}", format_bytes(session.peak_held_bytes()), format_bytes(budget.bytes));
  if (session.device().info().kind == "gpu") text += ", counted by " + session.counted_by();
  return text;
}

}  // namespace plimsoll::engine
