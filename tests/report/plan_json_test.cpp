#include <gtest/gtest.h>

#include "api/builtin.h"
#include "ops/build.h"
#include "report/plan_report.h"
#include "report/slow_kernels.h"

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

// A plan with one phase of two nodes: a relu that takes `seconds`, and another one that takes 1 ms.
Plan plan_with_relu(double seconds) {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {DType::kFloat32, {1000, 1000}}, Category::kInputs, false);
  const auto layer = b.in_layer("act");
  b.add1("relu", {b.add1("relu", {x})});
  Plan plan;
  PhasePlan& phase = plan.phases.emplace_back();
  phase.name = {PhaseKind::kTrain, false};
  phase.graph = b.graph();
  phase.nodes = {{"tiles", 0, 0, seconds}, {"tiles", 0, 0, 1e-3}};
  phase.seconds = seconds + 1e-3;
  return plan;
}

TEST(SlowKernels, AreThoseFarAboveTheRoofline) {
  DeviceInfo device;
  device.bytes_per_second = 16e9;  // 8 MB take 0.5 ms
  device.flops_per_second = device.half_flops_per_second = 1e12;
  EXPECT_TRUE(slow_kernels(plan_with_relu(1e-3), device).empty());
  const auto slow = slow_kernels(plan_with_relu(5e-3), device);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].layer, "act");
  EXPECT_EQ(slow[0].kernel, "tiles");
  EXPECT_DOUBLE_EQ(slow[0].seconds, 5e-3);
  EXPECT_DOUBLE_EQ(slow[0].limit_seconds, 0.52e-3);
  EXPECT_TRUE(slow_kernels(plan_with_relu(5e-3), DeviceInfo{}).empty()) << "without a roofline nothing is known";
}

}  // namespace
}  // namespace plimsoll::engine
