#include <fmt/format.h>

#include <chrono>

#include "base/json_text.h"
#include "cli/command.h"
#include "execute/probe.h"
#include "execute/random_batch.h"
#include "report/profile.h"

namespace plimsoll::engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kWarmUp = 2;  // the first step makes the arena's pages resident

struct ProfileFlags : CommonFlags {
  int64_t steps = 10;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<StepProfile> measure(const ProfileFlags& flags, Run& run) {
  Session& session = run.session();
  const Plan& plan = session.plan();
  const PhasePlan* const phase = plan.phase(plan.gradient_phase());
  if (phase == nullptr) return fail(ErrorCode::kInternal, "a plan to train with has no phase with gradients");
  const RandomBatch batch(run.model(), run.request().graph.data, *phase, plan.batch.micro);
  const auto step = [&]() -> Status {
    PLIMSOLL_TRY(run.step(plan.batch.effective, [&](const BatchRequest& piece, const BatchBuffers& into) -> Status {
      batch.read(piece.count, into);
      return {};
    }));
    PLIMSOLL_TRY(session.collect());
    return run.backend().finish();
  };
  for (int64_t i = 0; i < kWarmUp; ++i) PLIMSOLL_TRY(step());
  StepProfile profile;
  profile.model = plan.model;
  profile.device = run.device().name;
  profile.batch = plan.batch.effective;
  profile.steps = flags.steps;
  profile.predicted = plan.compute_seconds;
  profile.alone = run.device().own_memory;
  // Once without looking, for the time of a step, and once with a clock around each node.
  const auto start = Clock::now();
  for (int64_t i = 0; i < flags.steps; ++i) PLIMSOLL_TRY(step());
  profile.seconds = seconds_since(start) / static_cast<double>(flags.steps);
  Profile nodes;
  if (profile.alone) {
    PLIMSOLL_TRY(nodes.measure_alone(session, flags.steps));
  } else {
    nodes.attach(session);
    for (int64_t i = 0; i < flags.steps; ++i) PLIMSOLL_TRY(step());
    Probe(session).watch({});
  }
  profile.nodes = nodes.per_step(flags.steps, run.device());
  return profile;
}

Result<int> profile(ProfileFlags& flags) {
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  PLIMSOLL_ASSIGN(const auto run, Run::open(flags.options));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->backend().check_room(0));  // fails for a card that is only a profile to plan for
  PLIMSOLL_TRY(run->start());
  PLIMSOLL_ASSIGN(const StepProfile measured, measure(flags, *run));
  answer(flags.json ? json_text(step_profile_json(measured)) + "\n" : step_profile_text(measured));
  return 0;
}

}  // namespace

void add_profile_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command =
      app.add_subcommand("profile", "run some steps on random data and show where their time goes, by layer and kind");
  command->add_option("MODEL", flags->options.model, kModelHelp)->required();
  command->add_option("--steps", flags->steps, "steps to measure")->check(whole_above_zero())->capture_default_str();
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  command->footer("Example: plimsoll profile model.keras --batch-size 32");
  actions[command] = [flags] { return profile(*flags); };
}

}  // namespace plimsoll::engine
