#include <gtest/gtest.h>

#include "api/builtin.h"
#include "report/plan_report.h"

namespace plimsoll {
namespace {

TEST(PlanJson, MemoryIsNamedAfterTheCardThatIsUsed) {
  const auto model = Model::create(*builtin_model("seed-1"), {});
  ASSERT_TRUE(model);
  const SearchResult result;
  PlanReport report;
  report.model = &*model;
  report.result = &result;
  EXPECT_EQ(plan_json(report)["memories"][0]["space"], "host");
  report.device.own_memory = true;
  EXPECT_EQ(plan_json(report)["memories"][0]["space"], "gpu:0");
  report.gpu = 1;
  EXPECT_EQ(plan_json(report)["memories"][0]["space"], "gpu:1");
}

}  // namespace
}  // namespace plimsoll
