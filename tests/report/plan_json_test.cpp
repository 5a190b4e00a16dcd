#include <gtest/gtest.h>

#include "api/builtin.h"
#include "report/plan_report.h"

namespace plimsoll::engine {
namespace {

TEST(PlanJson, MemoryIsNamedAfterTheCardThatIsUsed) {
  const auto model = Model::create(*builtin_model("seed-1"), {});
  ASSERT_TRUE(model);
  SearchResult result;
  PlanReport report;
  report.model = &*model;
  report.result = &result;
  EXPECT_EQ(plan_json(report)["memories"][0]["space"], "host");
  result.plan.memory = "gpu:1";
  result.plan.beside = {{Space::kHost, "host", 4096}};
  const auto memories = plan_json(report)["memories"];
  EXPECT_EQ(memories[0]["space"], "gpu:1");
  EXPECT_EQ(memories[1]["space"], "host");
  EXPECT_EQ(memories[1]["arena_bytes"], 4096);
}

}  // namespace
}  // namespace plimsoll::engine
