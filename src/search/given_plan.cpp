#include "search/given_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/plan_match.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

ErrorCode code_of(const GivenPlan& given) {
  return given.of_checkpoint ? ErrorCode::kBadCheckpoint : ErrorCode::kBadPlan;
}

tl::unexpected<Error> damaged(const GivenPlan& given, std::string why) {
  return fail(Error{
      code_of(given),
      fmt::format("{}: the plan in this file is damaged", given.from),
      {std::move(why)},
      {given.of_checkpoint ? "resume from another checkpoint" : "create it again: plimsoll plan ... --save FILE"}});
}

int64_t samples_of(const Plan& plan, PhaseName phase) {
  const PhasePlan* found = plan.phase(phase);
  return found == nullptr ? 0 : found->samples;
}

// Returns the request with the phase sizes of the plan. A plan may have more phases than this run needs.
SearchRequest request_of(const Plan& plan, const SearchRequest& request) {
  SearchRequest same = request;
  same.budget = 0;  // the budget only selects among plans, and this plan was already selected
  same.host_budget = 0;
  same.micro_batch = plan.batch.micro;
  same.per_micro_batch_norm = plan.settings.of(kPerMicroBatchNorm) != 0;
  same.forbidden.erase(std::string(kPrefetch));
  if (plan.settings.of(kPrefetch) == 0) same.forbidden.insert(std::string(kPrefetch));
  const bool cut = plan.batch.micro < plan.batch.effective;
  same.partial_window = samples_of(plan, {PhaseKind::kTrain, true});
  for (const PhasePlan& phase : plan.phases)  // if there are two tails, one of them belongs to every window
    if (cut && phase.name == PhaseName{PhaseKind::kAccumulate, true} &&
        phase.samples != plan.batch.effective % plan.batch.micro)
      same.partial_window = phase.samples;
  const auto inference = [&](PhaseKind kind, int64_t& batch, int64_t& samples) {
    batch = samples_of(plan, {kind});
    samples = batch + samples_of(plan, {kind, true});
  };
  inference(PhaseKind::kEvaluate, same.evaluate_batch, same.evaluate_samples);
  inference(PhaseKind::kPredict, same.predict_batch, same.predict_samples);
  return same;
}

// Returns the first difference between a phase in the file and the phase compiled now, or "".
std::string difference(const PhasePlan& then, const PhasePlan& now) {
  if (then.name != now.name || then.samples != now.samples)
    return fmt::format("phase '{}' of {} samples in the file, '{}' of {} now", to_text(then.name), then.samples,
                       to_text(now.name), now.samples);
  const std::string where = fmt::format("phase '{}': ", to_text(then.name));
  if (print(then.graph) != print(now.graph)) return where + "the nodes differ";
  if (then.values != now.values) return where + "the places of values differ";
  const bool same_kernels = std::equal(then.nodes.begin(), then.nodes.end(), now.nodes.begin(), now.nodes.end(),
                                       [](const PlannedNode& a, const PlannedNode& b) {
                                         return a.kernel == b.kernel && a.workspace_bytes == b.workspace_bytes &&
                                                (a.workspace_bytes == 0 || a.workspace_offset == b.workspace_offset);
                                       });
  if (!same_kernels) return where + "the kernels or workspaces differ";
  if (then.arena_bytes != now.arena_bytes || then.beside != now.beside) return where + "the number of bytes differs";
  return {};
}

std::string difference(const Plan& then, const Plan& now) {
  if (then.phases.size() != now.phases.size())
    return fmt::format("{} phases in the file, {} now", then.phases.size(), now.phases.size());
  if (then.persistent != now.persistent) return "the persistent values differ";
  for (size_t i = 0; i < then.phases.size(); ++i)
    if (std::string found = difference(then.phases[i], now.phases[i]); !found.empty()) return found;
  if (then.overhead_bytes != now.overhead_bytes || then.planning_bytes != now.planning_bytes)
    return fmt::format("overhead {} bytes and planning {} bytes in the file, {} and {} now", then.overhead_bytes,
                       then.planning_bytes, now.overhead_bytes, now.planning_bytes);
  return {};
}

// Copies the prices (saved bytes, seconds) of the levers. They are known only from the search that selected the plan,
// and are only shown to the user.
void copy_prices(const std::vector<LeverUse>& then, std::vector<LeverUse>& now) {
  for (LeverUse& lever : now)
    for (const LeverUse& priced : then)
      if (priced.name == lever.name) lever.saves_bytes = priced.saves_bytes, lever.costs_seconds = priced.costs_seconds;
}

tl::unexpected<Error> made_for_else(const GivenPlan& given, std::vector<std::string> facts) {
  return fail(Error{
      code_of(given),
      fmt::format("{}: this {} does not match this run", given.from, given.of_checkpoint ? "checkpoint" : "plan"),
      std::move(facts),
      {given.of_checkpoint ? "use the flags that the run was started with, or another --checkpoint folder"
                           : "create it again with the flags and data of this run: plimsoll plan ... --save FILE"}});
}

}  // namespace

Status check_plan(const GivenPlan& given, const LeverTable& table) {
  // An invalid plan in a file is an error of the file, not a bug of this program.
  if (const Status valid = validate(given.plan); !valid) return damaged(given, valid.error().what);
  if (std::string why = impossible_setting(given.plan, table); !why.empty()) return damaged(given, std::move(why));
  return {};
}

Result<AcceptedPlan> accept_plan(const GivenPlan& given, const SearchRequest& request) {
  PLIMSOLL_ASSIGN(auto others, differences(given.plan, request));
  if (!others.empty()) return made_for_else(given, std::move(others));
  PLIMSOLL_ASSIGN(auto made, compile(request_of(given.plan, request), given.plan.settings));
  const std::string other = made ? difference(given.plan, *made) : "a lever cannot reach its setting";
  const bool recalibrated = given.plan.calibration != request.device->info().calibration;
  AcceptedPlan accepted;
  if (!other.empty()) {
    if (!given.of_checkpoint)
      return fail(
          Error{ErrorCode::kBadPlan,
                fmt::format("{}: this program compiles these settings to another plan", given.from),
                {other, recalibrated ? "the plan was made with another calibration (--calibration), or the file was "
                                       "changed, or written by another version of Plimsoll"
                                     : "the file was changed, or written by another version of Plimsoll"},
                {"create it again: plimsoll plan ... --save FILE"}});
    if (!made) return damaged(given, other);
    accepted.note = fmt::format(
        "note: {} another plan than the one in {} ({}): the run continues with results equal up to "
        "rounding, not bit for bit",
        recalibrated ? "with another calibration, this version compiles" : "this version compiles", given.from, other);
  }
  copy_prices(given.plan.levers, made->levers);
  made->program = given.plan.program;
  if (made->peak_bytes() > request.budget)
    return fail(Error{ErrorCode::kDoesNotFit,
                      fmt::format("{}: this plan needs {}, but the budget is {}", given.from,
                                  format_bytes(made->peak_bytes()), format_bytes(request.budget)),
                      {},
                      {"a larger --budget"}});
  PLIMSOLL_TRY(validate(*made));
  accepted.result.plan = std::move(*made);
  accepted.result.fits = true;
  accepted.result.least_bytes = accepted.result.plan.peak_bytes();
  return accepted;
}

}  // namespace plimsoll::engine
