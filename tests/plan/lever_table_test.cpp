// The lever table: its rows are complete, and one new row is enough to add a lever.
#include "search/lever_table.h"

#include "search/given_plan.h"
#include "tests/support/compiled.h"
#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

TEST(LeverTable, RowsAreWhole) {
  std::set<std::string_view> names;
  for (const Lever& lever : lever_table()) {
    EXPECT_TRUE(names.insert(lever.name).second) << lever.name << " stands twice";
    EXPECT_EQ(lever.rewrite != nullptr, lever.stage == LeverStage::kJointGraph) << lever.name;
    EXPECT_EQ(lever.rewrite_ordered != nullptr, lever.stage == LeverStage::kOrderedGraph) << lever.name;
    EXPECT_TRUE(std::is_sorted(lever.values.begin(), lever.values.end())) << lever.name;
    for (const int64_t value : lever.values) EXPECT_GT(value, 0) << lever.name << ": 0 is off";
    EXPECT_TRUE(lever.widens.empty() || names.count(lever.widens) == 1) << lever.name;
    // Search must not choose a lever that changes training.
    EXPECT_TRUE(!lever.is_searched() || lever.effect != Effect::kTraining) << lever.name;
  }
}

// A lever that exists only in this row: recompute under another name.
constexpr std::string_view kToy = "toy";
constexpr int64_t kToyValues[] = {20};

LeverTable with_toy() {
  LeverTable table = lever_table();
  table.push_back(
      {.name = kToy, .stage = LeverStage::kOrderedGraph, .values = kToyValues, .rewrite_ordered = recompute_percent});
  return table;
}

// A problem whose budget only the toy lever reaches: the batch must not be split, and recompute is forbidden.
struct ToyProblem : Problem {
  LeverTable table = with_toy();

  ToyProblem() : Problem(golden("resnet.keras"), 32) {
    request.levers = &table;
    request.forbidden = {std::string(kRecompute), std::string(kPrefetch)};
    request.budget = require(compile(request, LeverSettings().with(kToy, 20)))->peak_bytes();
  }
};

TEST(LeverTable, ANewRowIsSearchedCountedAndPriced) {
  const ToyProblem problem;
  const SearchResult result = require(search(problem.request));
  ASSERT_TRUE(result.fits);
  EXPECT_EQ(result.plan.settings.of(kToy), 20);
  ASSERT_EQ(result.plan.levers.size(), 1U);
  EXPECT_EQ(result.plan.levers[0].name, kToy);
  EXPECT_GT(result.plan.levers[0].count, 0);
  EXPECT_EQ(result.plan.levers[0].saves_bytes, result.unlevered_arena_bytes - result.plan.arena_bytes);
  EXPECT_GT(result.plan.levers[0].saves_bytes, 0);
  EXPECT_EQ(searched_levers(problem.table).back(), kToy);
}

TEST(LeverTable, ANewRowCanBeForbiddenAndIsThenARemedy) {
  ToyProblem problem;
  problem.request.forbidden.insert(std::string(kToy));
  const SearchResult result = require(search(problem.request));
  EXPECT_FALSE(result.fits);
  EXPECT_TRUE(result.plan.levers.empty());
  const std::string error = to_text(does_not_fit(problem.request, result));
  EXPECT_NE(error.find("leave --forbid and --allow out"), std::string::npos) << error;
}

TEST(LeverTable, ASavedPlanWithANewRowIsMadeAgainByTheTable) {
  ToyProblem problem;
  const Plan plan = require(search(problem.request)).plan;
  const GivenPlan given{require(plan_from_json(nlohmann::json::parse(to_json(plan).dump()))), "a.plan", false};
  EXPECT_TRUE(check_plan(given, problem.table));
  EXPECT_FALSE(check_plan(given)) << "the program's own table has no such lever";
  const auto accepted = accept_plan(given, problem.request);
  ASSERT_TRUE(accepted) << to_text(accepted.error());
  EXPECT_EQ(to_json(accepted->result.plan), to_json(plan));
  problem.request.forbidden.insert(std::string(kToy));
  EXPECT_FALSE(accept_plan(given, problem.request)) << "it is forbidden now";
}

TEST(LeverTable, ATailIsCompiledWithThePlansSettings) {
  const ToyProblem problem;
  const Plan plan = require(search(problem.request)).plan;
  const PhasePlan tail = require(plan_tail(problem.request, plan, plan.gradient_phase(), 31));
  const Plan whole = compiled(problem.request, 32);
  EXPECT_GT(tail.nodes.size(), whole.phase(PhaseKind::kTrain)->nodes.size()) << "nothing in it is recomputed";
}

// The settings of a plan are complete: no other field is needed to compile the plan again.
TEST(LeverTable, APlanRecordsAllItsSettings) {
  Problem problem(golden("resnet.keras"), 8);
  problem.request.per_micro_batch_norm = true;
  const Plan plan = compiled(problem.request, 3, 2);
  EXPECT_EQ(to_json(plan).at("settings"),
            nlohmann::json({{"micro-batch", 3}, {"per-micro-batch-norm", 1}, {"prefetch", 1}, {"recompute", 2}}));
  const Plan read = require(plan_from_json(to_json(plan)));
  EXPECT_EQ(read.settings, plan.settings);
  EXPECT_EQ(read.batch.micro, 3);
  EXPECT_EQ(read.levers.back().effect, Effect::kTraining);
}

}  // namespace
}  // namespace plimsoll::engine::testing
